package policies

import _ "embed"

// Schema is the JSON Schema of a policies file, for editors. Read accepts no file that the schema
// rejects.
//
//go:embed policies.schema.json
var Schema string

// TestSchema is the JSON Schema of a file of tests.
//
//go:embed tests.schema.json
var TestSchema string
