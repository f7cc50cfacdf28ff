package sample

import "errors"

const (
	One, two = 1, 2
	Three    = 3
)

var ErrFour = errors.New("four")

type Five[T any] struct{ Field T }

func (*Five[T]) Six()  {}
func (Five[T]) seven() {}

type eight struct{}

func (eight) Nine() {}

type Ten interface{ Method() }

func Eleven() {}
func twelve() {}
