package process

import (
	"context"
	"slices"
	"sync"
)

// Steps of the shutdown, in their order.
const (
	stepUnready    = "unready"    // readiness goes first, so that nobody sends more to this gateway
	stepStreams    = "streams"    // streams end, because their clients never end them
	stepDrain      = "drain"      // the ports close, and requests in progress are answered, with their penalties
	stepBackground = "background" // what ends by itself has ended: the rules, the sweep and the assignments of quotas
	stepSettle     = "settle"     // what Envoys have reported is charged: no stream brings more of it
	stepClose      = "close"      // the clients of Redis, when nothing asks any more
)

// do takes a step of the shutdown.
func (g *Gateway) do(step string, f func()) {
	if g.options.step != nil {
		g.options.step(step)
	}
	f()
}

// shutdown ends everything but the clients of Redis. The goroutines in background have been told to end.
func (g *Gateway) shutdown(background *sync.WaitGroup) {
	g.options.Log.Info("shutting down: the ports close, and requests in progress may finish", "within", drain)
	g.do(stepUnready, g.setEnding)
	g.do(stepStreams, g.cut)
	g.do(stepDrain, g.drain)
	g.do(stepBackground, background.Wait) // if Redis hangs, this takes longer than the ports should stay open
	g.do(stepSettle, func() {
		ctx, cancel := context.WithTimeout(context.Background(), settle)
		defer cancel()
		g.quotas.Settle(ctx)
	})
}

// drain closes the ports, and waits until the requests in progress are finished or the time for them is
// over.
func (g *Gateway) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	done := make(chan struct{})
	go func() {
		g.grpc.GracefulStop()
		close(done)
	}()
	var web sync.WaitGroup
	for _, server := range g.http { // together, because a port stays open until its turn
		web.Go(func() { _ = server.Shutdown(ctx) })
	}
	web.Wait()
	select {
	case <-done:
	case <-ctx.Done():
		g.grpc.Stop()
		<-done
	}
	for _, server := range g.http {
		_ = server.Close()
	}
}

// closeAll closes what the gateway has opened, the last one first.
func (g *Gateway) closeAll() {
	for _, end := range slices.Backward(g.close) {
		end()
	}
}
