package graph

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Follow reads the catalogue's file at an interval and replaces the catalogue when the file has changed, until ctx ends. It logs
// an unreadable or invalid file once and keeps the catalogue.
func (h *Handler) Follow(ctx context.Context, path string, interval time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last []byte
	var logged string
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
			if message := err.Error(); message != logged {
				log.Warn("release catalogue is invalid; the previous one is served", logkey.Error, err)
				logged = message
			}
			continue
		}
		h.Replace(catalogue)
		log.Info("release catalogue changed", logkey.Count, len(catalogue.Releases()))
		last, logged = text, ""
	}
}
