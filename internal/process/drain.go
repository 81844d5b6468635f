package process

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// drain is the period between the signal to stop and the end of the program's context. In it, the process is not ready and serves on,
// because load balancers send requests until they have noticed that.
type drain struct {
	period time.Duration
	// begun is closed when the first signal arrives.
	begun chan struct{}
}

// errDraining is the reason for which a draining process is not ready.
var errDraining = errors.New("the process was asked to stop and accepts requests only for a short time")

// drainReason is the name of the reason in a Readiness.
const drainReason = "drain"

// drainKey is the key of a *drain in the context of a program.
type drainKey struct{}

// drainOf returns the drain of a context, or nil if the context is not that of a program.
func drainOf(ctx context.Context) *drain {
	d, _ := ctx.Value(drainKey{}).(*drain)
	return d
}

// draining reports whether the process was asked to stop.
func (d *drain) draining() bool {
	if d == nil {
		return false
	}
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// untilSignal returns a context that ends a drain period after the first SIGTERM or SIGINT, or with the second one. Call stop to
// end the context and release its resources.
func untilSignal(d *drain, log *slog.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), drainKey{}, d))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		close(d.begun)
		if d.period <= 0 {
			return
		}
		log.Info("draining", logkey.Duration, d.period.String())
		timer := time.NewTimer(d.period)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-signals:
		case <-timer.C:
		}
	})
	return ctx, func() {
		cancel()
		group.Wait()
		signal.Stop(signals)
	}
}

// closeConnections makes the server close each connection after the response to its current request while the process drains, so that
// clients connect to another replica. With HTTP/2 the server sends GOAWAY.
func (d *drain) closeConnections(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
