package etcdrotation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// State is what a Store contains.
type State struct {
	Keys kubeapi.EncryptionKeys
	// Resources are the encrypted resources, NAME or NAME.GROUP.
	Resources []string
	// Hash is that of the configuration with the keys, as the API server reports it.
	Hash string

	// version is the content of a file, or the resourceVersion of a Secret, and entries are the entries of the Secret.
	version string
	entries []string
}

// Store stores the keys of an API server. When Write has returned, they are stored durably.
type Store interface {
	Read(ctx context.Context) (State, error)
	// Write replaces the keys. It fails if the store has changed since Read returned state.
	Write(ctx context.Context, state State, keys kubeapi.EncryptionKeys) error
}

// errChanged is returned by Write if the store has changed.
var errChanged = errors.New("another process has changed the encryption keys; run the command again to continue")

func stateOf(configuration []byte) (State, error) {
	keys, resources, err := kubeapi.ReadEncryptionConfiguration(configuration)
	return State{Keys: keys, Resources: resources, Hash: fmt.Sprintf("sha256:%x", sha256.Sum256(configuration))}, err
}

// file is a file with an encryption configuration.
type file struct{ path string }

// OpenFile returns the store of an API server that reads its configuration from a file. No other process of the machine can open it until
// unlock is called or the process ends.
func OpenFile(path string) (store Store, unlock func(), err error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	unlock, err = keyfile.Lock(path)
	return &file{path}, unlock, err
}

func (f *file) Read(context.Context) (State, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return State{}, err
	}
	state, err := stateOf(text)
	if err != nil {
		return State{}, fmt.Errorf("%s: %w", f.path, err)
	}
	state.version = string(text)
	return state, nil
}

func (f *file) Write(_ context.Context, state State, keys kubeapi.EncryptionKeys) error {
	current, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(current, []byte(state.version)) {
		return fmt.Errorf("%s: %w", f.path, errChanged)
	}
	// The first two resources are always encrypted.
	next, err := kubeapi.EncryptionConfiguration(keys, state.Resources[2:]...)
	if err != nil {
		return err
	}
	return authority.WriteDurably(f.path, next, 0o600)
}

// Secret is the store of a hosted API server: kubeapi.HostedEncryptionSecret in the namespace of the control plane. The runtime writes its
// content to the file of the API server.
type Secret struct {
	// Management is the API server of the management cluster.
	Management Server
	Namespace  string
}

func (s *Secret) path() string {
	return "/api/v1/namespaces/" + url.PathEscape(s.Namespace) + "/secrets/" + kubeapi.HostedEncryptionSecret
}

// Read implements Store.
func (s *Secret) Read(ctx context.Context) (State, error) {
	var secret struct {
		Metadata objectMeta        `json:"metadata"`
		Data     map[string][]byte `json:"data"`
	}
	if err := s.Management.call(ctx, http.MethodGet, s.path(), "application/json", nil, &secret); err != nil {
		return State{}, err
	}
	keys, err := kubeapi.EncryptionKeysOf(secret.Data)
	if err != nil {
		return State{}, err
	}
	configuration, err := kubeapi.EncryptionConfiguration(keys)
	if err != nil {
		return State{}, err
	}
	state, err := stateOf(configuration)
	state.version = secret.Metadata.ResourceVersion
	for entry := range secret.Data {
		state.entries = append(state.entries, entry)
	}
	slices.Sort(state.entries)
	return state, err
}

// Write implements Store. A change of the Secret that leaves the keys as they are is no conflict: a rotation of the management cluster's own
// key writes all its Secrets again.
func (s *Secret) Write(ctx context.Context, state State, keys kubeapi.EncryptionKeys) error {
	for {
		err := s.write(ctx, state, keys)
		if !isStatus(err, http.StatusConflict) {
			return err
		}
		current, err := s.Read(ctx)
		if err != nil {
			return err
		}
		if !current.Keys.Equal(state.Keys) {
			return fmt.Errorf("Secret %s/%s: %w", s.Namespace, kubeapi.HostedEncryptionSecret, errChanged)
		}
		state = current
	}
}

func (s *Secret) write(ctx context.Context, state State, keys kubeapi.EncryptionKeys) error {
	data := map[string]any{}
	for _, entry := range state.entries {
		data[entry] = nil // removes it
	}
	for entry, value := range keys.SecretData() {
		data[entry] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": state.version}, "data": data})
	if err != nil {
		return err
	}
	return s.Management.call(ctx, http.MethodPatch, s.path(), metadataOnly, patch, nil)
}
