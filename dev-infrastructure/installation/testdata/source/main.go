// Command source is a source of the Maestro server, with the client of Cluster Service. It reads requests from its standard input and writes
// results and statuses to its standard output, each as JSON in a line, until the input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// request asks to publish a bundle. Action is create, update or delete.
type request struct {
	Action string
	Bundle maestro.Bundle
}

// output is a line of the output: the start of the subscription, the result of a request, or a status.
type output struct {
	Subscribed bool            `json:",omitempty"`
	Published  string          `json:",omitempty"`
	Error      string          `json:",omitempty"`
	Bundle     string          `json:",omitempty"`
	Version    int64           `json:",omitempty"`
	Status     json.RawMessage `json:",omitempty"`
}

// writer writes lines. It is safe for concurrent use.
type writer struct {
	mu sync.Mutex
	to *json.Encoder
}

func (w *writer) write(o output) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.to.Encode(o); err != nil {
		log.Fatal(err) // nobody reads
	}
}

// publish sends a request to the server.
func publish(ctx context.Context, client *maestro.Client, r *request) (version int64, err error) {
	switch r.Action {
	case "create":
		return client.Create(ctx, &r.Bundle)
	case "update":
		return client.Update(ctx, &r.Bundle)
	case "delete":
		return 0, client.Delete(ctx, &r.Bundle)
	}
	return 0, fmt.Errorf("unknown action %q", r.Action)
}

func run(address, identityDir string) error {
	identity, err := mesh.LoadIdentity(identityDir)
	if err != nil {
		return err
	}
	transport := credentials.NewTLS(identity.ClientTLS(mesh.MaestroServer))
	client, err := maestro.NewClient(address, mesh.MaestroSource, transport, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	lines := &writer{to: json.NewEncoder(os.Stdout)}
	ctx, stop := context.WithCancel(context.Background())
	var subscription sync.WaitGroup
	defer subscription.Wait()
	defer stop()
	subscription.Go(func() {
		client.Subscribe(ctx, maestro.Subscriber{
			Started: func(ctx context.Context) error {
				lines.write(output{Subscribed: true})
				return client.Resync(ctx, nil) // what was missed while there was no subscription
			},
			Status: func(event *maestro.Event) {
				lines.write(output{Bundle: event.ResourceID, Version: event.Version, Status: event.Body})
			},
		})
	})
	for input := json.NewDecoder(os.Stdin); ; {
		var r request
		if err := input.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result := output{Published: r.Bundle.ID}
		if result.Version, err = publish(ctx, client, &r); err != nil {
			result.Error = err.Error()
		}
		lines.write(result)
	}
}

func main() {
	address := flag.String("grpc", "", "host:port of the gRPC API")
	identity := flag.String("identity-dir", "", "identity folder of Cluster Service")
	flag.Parse()
	if err := run(*address, *identity); err != nil {
		log.Fatal(err)
	}
}
