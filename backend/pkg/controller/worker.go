package controller

import (
	"context"
	"sync"
)

// Queue is the part of a workqueue of client-go that Run uses.
type Queue[K any] interface {
	// Get waits for the next key. shutdown is true after ShutDown, once the queue is empty.
	Get() (key K, shutdown bool)
	// Done reports that the key was processed. Until then, Get does not return the key again.
	Done(key K)
	// ShutDown makes the queue ignore new keys.
	ShutDown()
}

// RunWorkers calls process for the keys of a queue, in up to count goroutines, until ctx ends. Then it shuts the queue down, and
// returns when process was called for the remaining keys, with the ended ctx.
func RunWorkers[K any](ctx context.Context, queue Queue[K], count int, process func(context.Context, K)) {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var wg sync.WaitGroup
	for range count {
		wg.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				process(ctx, key)
				queue.Done(key)
			}
		})
	}
	wg.Wait()
}
