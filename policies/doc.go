// Package policies reads policies.yaml, makes the library check its content, and runs unit tests of
// policies in the offline engine, without a server or a network.
//
//	file, err := policies.Read("policies.yaml")
//	...
//	build, err := file.Build() // the library with these policies, for package loader
//
// docs/policies.md describes policies.yaml and the files of tests.
package policies
