package netfault_test

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// echo runs a server that sends back what it receives, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				buffer := make([]byte, 1)
				for {
					if _, err := connection.Read(buffer); err != nil {
						return
					}
					if _, err := connection.Write(buffer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// ask sends a byte and returns the error of the wait for the response. deadline is that of the wait; zero means none.
func ask(t *testing.T, connection net.Conn, deadline time.Time) error {
	t.Helper()
	must.Get(connection.Write([]byte("x")))(t)
	must.Do(t, connection.SetReadDeadline(deadline))
	_, err := connection.Read(make([]byte, 1))
	return err
}

func TestHungServerAcceptsConnectionsAndDoesNotRespond(t *testing.T) {
	proxy := netfault.StartProxy(t, echo(t))
	old := must.Get(net.Dial("tcp", proxy.Address))(t)
	defer old.Close()
	must.Do(t, ask(t, old, time.Time{}))
	proxy.Hang()
	new := must.Get(net.Dial("tcp", proxy.Address))(t)
	defer new.Close()
	for name, connection := range map[string]net.Conn{"existing": old, "new": new} {
		if err := ask(t, connection, time.Now().Add(50*time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s connection: %v", name, err)
		}
	}
	proxy.Continue()
	for name, connection := range map[string]net.Conn{"existing": old, "new": new} {
		if err := ask(t, connection, time.Time{}); err != nil {
			t.Errorf("%s connection after the hang: %v", name, err)
		}
	}
}

func TestStoppedServerClosesConnections(t *testing.T) {
	proxy := netfault.StartProxy(t, echo(t))
	// Each client connects again until the test closes stop, so that some connections are incomplete when the proxy disconnects.
	var clients sync.WaitGroup
	stop := make(chan struct{})
	opened := make(chan net.Conn, 1000)
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				connection, err := net.Dial("tcp", proxy.Address)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case opened <- connection:
				default:
					_ = connection.Close()
				}
			}
		})
	}
	first := <-opened
	must.Do(t, ask(t, first, time.Time{}))
	opened <- first
	proxy.Disconnect()
	close(stop)
	clients.Wait()
	close(opened)
	for connection := range opened {
		if _, err := connection.Read(make([]byte, 1)); err == nil {
			t.Errorf("a connection is open while the server looks stopped: %v", err)
		}
		_ = connection.Close()
	}
	proxy.Continue()
	again := must.Get(net.Dial("tcp", proxy.Address))(t)
	defer again.Close()
	if err := ask(t, again, time.Time{}); err != nil {
		t.Errorf("after the server looks started: %v", err)
	}
}
