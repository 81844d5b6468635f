package graph

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Follow reads the catalogue's file again and again and gives the handler what has changed, until ctx is over. A file that
// cannot be read or makes no catalogue is said once and changes nothing.
func (h *Handler) Follow(ctx context.Context, path string, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last []byte
	var said string
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Equal(text, last) {
			continue
		}
		var catalogue *release.Catalog
		if err == nil {
			catalogue, err = release.Parse(text)
		}
		if err != nil {
			if message := err.Error(); message != said {
				slog.Warn("the release catalogue cannot be used; the one before goes on", "error", err)
				said = message
			}
			continue
		}
		h.Replace(catalogue)
		slog.Info("read the release catalogue", "releases", len(catalogue.Releases()))
		last, said = text, ""
	}
}
