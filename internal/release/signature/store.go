package signature

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxMessages is the maximum number of messages that are read for one digest.
const maxMessages = 10

// Store has messages by digest. Implementations are safe for concurrent use.
type Store interface {
	// Message returns the message of a digest with a number, counted from 1, and nil if there is none.
	Message(ctx context.Context, digest string, number int) ([]byte, error)
	// String returns where the store is.
	String() string
}

// OpenStore returns the store with a URL: https://HOST/PATH, which client requests, or file:///PATH. Messages are below
// sha256=HEX/signature-N, as in the signature store of OpenShift's publisher.
func OpenStore(location string, client *http.Client) (Store, error) {
	u, err := url.Parse(location)
	switch {
	case err != nil:
		return nil, err
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("%q has a user, a query or a fragment", location)
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		return folder(u.Path), nil
	case u.Scheme == "https" && u.Host != "":
		return &server{base: strings.TrimSuffix(u.String(), "/"), client: client}, nil
	}
	return nil, fmt.Errorf("%q is neither https://HOST/PATH nor file:///PATH", location)
}

// name returns the path of a message in a store.
func name(digest string, number int) string {
	return strings.Replace(digest, ":", "=", 1) + "/signature-" + strconv.Itoa(number)
}

// folder is a store on disk.
type folder string

func (f folder) String() string { return "file://" + string(f) }

func (f folder) Message(_ context.Context, digest string, number int) ([]byte, error) {
	if _, err := os.Stat(string(f)); err != nil {
		return nil, err // without the folder, a missing message proves nothing
	}
	file, err := os.Open(filepath.Join(string(f), filepath.FromSlash(name(digest, number))))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readMessage(file)
}

// server is a store that is served over HTTPS.
type server struct {
	base   string
	client *http.Client
}

func (s *server) String() string { return s.base }

func (s *server) Message(ctx context.Context, digest string, number int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/"+name(digest, number), nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return readMessage(response.Body)
	case http.StatusNotFound:
		return nil, nil
	}
	return nil, fmt.Errorf("the store returned %s", response.Status)
}

func readMessage(r io.Reader) ([]byte, error) {
	message, err := io.ReadAll(io.LimitReader(r, MaxMessage+1))
	switch {
	case err != nil:
		return nil, err
	case len(message) == 0:
		return []byte{}, nil // it exists
	}
	return message, nil
}
