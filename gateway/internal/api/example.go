package api

import (
	"errors"
	"strings"
)

// examples has a right value of each field, for error messages.
var examples = map[string]string{
	"keys":           `"keys":["user:42"]`,
	"limits":         `"limits":["100/m"]`,
	"key":            `"key":"user:42"`,
	"limit":          `"limit":"@jobs"`,
	"lease_id":       `"lease_id":"job-7"`,
	"cost":           `"cost":5`,
	"class":          `"class":"batch"`,
	"floor":          `"floor":20`,
	"borrow":         `"borrow":true`,
	"paid":           `"paid":2`,
	"amount":         `"amount":1500`,
	"ttl_ms":         `"ttl_ms":60000`,
	"actual":         `"actual":812`,
	"reservation_id": `"reservation_id":"aVC6GQVN5O2LKNB6RFKQ2J7XGTE"`,
	"upto":           `"upto":true`,
	"force":          `"force":true`,
	"each":           `"each":true`,
	"extend":         `"extend":true`,
	"ms":             `"ms":60000`,
	"track":          `"track":"usage:{user:42}"`,
	"once":           `"once":{"key":"request-17","ttl_ms":60000}`,
	"once.key":       `"key":"request-17"`,
	"once.ttl_ms":    `"ttl_ms":60000`,
}

// exemplified adds an example of the field at path to an error about it, unless the error has one.
func exemplified(path string, err error) error {
	const such = ", such as "
	wrong, ok := errors.AsType[*invalid](err)
	example := examples[path]
	if !ok || example == "" || strings.Contains(wrong.text, such+`"`) {
		return err
	}
	copied := *wrong
	copied.text += such + example
	return &copied
}
