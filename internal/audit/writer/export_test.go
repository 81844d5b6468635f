package writer

import (
	"os"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// CheckEvery is the time after which an idle writer checks the sink.
const CheckEvery = checkEvery

// SetSync replaces the call that makes the content of a file durable.
func SetSync(config *Config, sync func(*os.File) error) { config.sync = sync }

// Abandon gives an action up, as End does if the beginning is not durable in time.
func Abandon(a audit.Action) bool { return a.(*action).begun.state.CompareAndSwap(waiting, abandoned) }

// Done is closed when the beginning of an action has its result.
func Done(a audit.Action) <-chan struct{} { return a.(*action).begun.done }
