package blobsink

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

const (
	checkpointSuffix = ".checkpoint"
	// maxCheckpoint bounds a checkpoint that is read.
	maxCheckpoint = audit.MaxLine
)

// Witness is a sink.Witness and a sink.WitnessReader with one block blob for each writer. Its container should be in another account
// than the sink, and keep versions of its blobs.
type Witness struct {
	container *container.Client
}

// NewWitness returns the witness in a container.
func NewWitness(c Config) (*Witness, error) {
	client, err := c.connect()
	if err != nil {
		return nil, err
	}
	return &Witness{client}, nil
}

// Put implements sink.Witness.
func (w *Witness) Put(ctx context.Context, writer string, line []byte) error {
	if !audit.ValidWriter(writer) {
		return fmt.Errorf("%q is not the name of an audit writer", writer)
	}
	if _, err := w.container.NewBlockBlobClient(writer+checkpointSuffix).UploadBuffer(ctx, line, nil); err != nil {
		return fmt.Errorf("writing to the audit witness: %w", err)
	}
	return nil
}

// Checkpoint implements sink.WitnessReader.
func (w *Witness) Checkpoint(ctx context.Context, writer string) ([]byte, error) {
	line, err := w.read(ctx, writer+checkpointSuffix)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit witness: %w", err)
	}
	return line, nil
}

// Checkpoints implements sink.WitnessReader.
func (w *Witness) Checkpoints(ctx context.Context) (map[string][]byte, error) {
	lines := map[string][]byte{}
	for pager := w.container.NewListBlobsFlatPager(nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the audit witness: %w", err)
		}
		for _, item := range page.Segment.BlobItems {
			writer, ok := strings.CutSuffix(*item.Name, checkpointSuffix)
			if !ok {
				continue
			}
			if lines[writer], err = w.read(ctx, *item.Name); err != nil {
				return nil, fmt.Errorf("reading the audit witness: %w", err)
			}
		}
	}
	return lines, nil
}

func (w *Witness) read(ctx context.Context, name string) ([]byte, error) {
	response, err := w.container.NewBlobClient(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(io.LimitReader(response.Body, maxCheckpoint))
}
