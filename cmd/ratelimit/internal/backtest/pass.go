package backtest

import (
	"sync"
	"sync/atomic"
)

// share identifies a worker's share of the keys: all keys with number % of == me.
type share struct{ me, of uint32 }

func (s share) mine(key uint32) bool { return key%s.of == s.me }

// place returns the index of a key among the worker's keys, from 0; key is the inverse.
func (s share) place(key uint32) int { return int(key / s.of) }
func (s share) key(place int) uint32 { return uint32(place)*s.of + s.me }

// A job processes requests in the order of their times, in the goroutine of one worker.
type job interface{ see(r *event) error }

const (
	batchSize = 512
	batches   = 4 // maximum number of batches that wait for a worker
)

// pass sends every request to the jobs of every worker. source calls emit for each request; it runs
// in the caller's goroutine.
func pass(workers [][]job, source func(emit func(event) error) error) error {
	var failed atomic.Pointer[error] // error from the first worker that failed
	failure := func() error {
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
	queues := make([]chan []event, len(workers))
	var running sync.WaitGroup
	for i, jobs := range workers {
		queues[i] = make(chan []event, batches)
		running.Go(func() {
			for batch := range queues[i] {
				for n := range batch {
					for _, j := range jobs {
						if err := j.see(&batch[n]); err != nil {
							failed.CompareAndSwap(nil, &err)
							for range queues[i] { // drain the queue, so that the source does not block
							}
							return
						}
					}
				}
			}
		})
	}
	var batch []event
	send := func() error {
		for _, queue := range queues {
			queue <- batch
		}
		batch = nil
		return failure()
	}
	err := source(func(r event) error {
		if batch == nil {
			batch = make([]event, 0, batchSize)
		}
		if batch = append(batch, r); len(batch) < batchSize {
			return nil
		}
		return send()
	})
	_ = send()
	for _, queue := range queues {
		close(queue)
	}
	running.Wait()
	if err == nil {
		err = failure()
	}
	return err
}
