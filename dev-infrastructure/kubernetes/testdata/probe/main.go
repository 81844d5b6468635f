// Command probe is the workload of the tests of clusters. "serve" responds to every HTTP request on port 8080 with the name of its pod,
// "get URL" prints the response of a server, "resolve NAME" the addresses of a name, and "write FILE" creates a file.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: probe serve | get URL | resolve NAME | write FILE")
	}
	var err error
	switch {
	case os.Args[1] == "serve":
		err = serve()
	case os.Args[1] == "get" && len(os.Args) == 3:
		err = get(os.Args[2])
	case os.Args[1] == "resolve" && len(os.Args) == 3:
		var addresses []string
		addresses, err = net.LookupHost(os.Args[2])
		fmt.Println(strings.Join(addresses, " "))
	case os.Args[1] == "write" && len(os.Args) == 3:
		err = os.WriteFile(os.Args[2], []byte("written"), 0o600)
	default:
		err = fmt.Errorf("unknown arguments %q", os.Args[1:])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve serves until SIGTERM.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, name)
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println("serving as", name)
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// get prints the response to one request on a connection of its own.
func get(url string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
