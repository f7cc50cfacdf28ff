// Package policies reads policies.yaml, has the library itself check what is in it, and runs unit tests of policies in
// the offline engine: no server, no network.
//
//	file, err := policies.Read("policies.yaml")
//	...
//	build, err := file.Build() // a library text with these policies, for package loader
//
// docs/policies.md describes both files.
package policies
