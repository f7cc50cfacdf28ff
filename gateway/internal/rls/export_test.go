package rls

var Decode = decode
