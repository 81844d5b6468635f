package vault

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// secrets is the bucket of secrets, by lower-case name.
const secrets = "secrets"

// maxSecret is the maximum size of a value, in bytes.
const maxSecret = 25 << 10

// secret is a stored secret. The newest version is the last one.
type secret struct {
	Name     string          `json:"name"`
	Versions []secretVersion `json:"versions"`
	Deleted  time.Time       `json:"deleted,omitzero"`
}

// secretVersion is one version of a secret.
type secretVersion struct {
	Version string    `json:"version"`
	Created time.Time `json:"created"`
	secretParameters
}

// secretParameters is the body of Set Secret.
type secretParameters struct {
	Value       *string           `json:"value"`
	ContentType string            `json:"contentType,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Attributes  struct {
		Enabled *bool  `json:"enabled,omitempty"`
		Begins  *int64 `json:"nbf,omitempty"`
		Ends    *int64 `json:"exp,omitempty"`
	} `json:"attributes"`
}

// respondSecret executes a request for secrets. rest are the segments of the path after the collection.
func (s *Server) respondSecret(base string, deleted bool, method string, rest []string, body []byte) (int, any, error) {
	operation := ""
	if len(rest) == 2 {
		operation = rest[1]
	}
	switch {
	case len(rest) > 2:
	case !deleted && len(rest) == 0 && method == http.MethodGet:
		return s.listSecrets(base)
	case len(rest) == 0:
	case !deleted && method == http.MethodPut && operation == "":
		return s.setSecret(base, rest[0], body)
	case !deleted && method == http.MethodGet && operation == "versions":
		return s.listVersions(base, rest[0])
	case !deleted && method == http.MethodGet:
		return s.getSecret(base, rest[0], operation)
	case !deleted && method == http.MethodDelete && operation == "":
		return s.changeSecret(base, rest[0], false, func(found *secret) error {
			found.Deleted = s.Now()
			return nil
		})
	case deleted && method == http.MethodPost && operation == "recover":
		return s.changeSecret(base, rest[0], true, func(found *secret) error {
			if s.Now().Before(found.Deleted.Add(s.OperationDelay)) {
				return newError(http.StatusConflict, "Conflict", "Secret %s is currently being deleted.", found.Name)
			}
			found.Deleted = time.Time{}
			return nil
		})
	case deleted && method == http.MethodDelete && operation == "":
		return s.changeSecret(base, rest[0], true, func(found *secret) error {
			return newError(http.StatusForbidden, "Forbidden", "Secret %s cannot be purged because the vault has purge protection.", found.Name)
		})
	}
	return 0, nil, newError(http.StatusNotImplemented, "NotImplemented", "%s of this path of secrets is not emulated.", method)
}

// findSecret returns a secret that is deleted or not, as wanted.
func (s *Server) findSecret(name string, deleted bool) (*secret, error) {
	found := &secret{}
	err := s.Store.View(func(tx *store.Tx) error {
		exists, err := tx.Get(secrets, strings.ToLower(name), found)
		if err == nil && (!exists || found.Deleted.IsZero() == deleted) {
			err = newError(http.StatusNotFound, "SecretNotFound", "A secret with (name/id) %s was not found in this key vault.", name)
		}
		return err
	})
	return found, err
}

// changeSecret changes a secret, and responds with its newest version without the value.
func (s *Server) changeSecret(base, name string, deleted bool, change func(*secret) error) (int, any, error) {
	found, err := s.findSecret(name, deleted)
	if err == nil {
		err = change(found)
	}
	if err != nil {
		return 0, nil, err
	}
	b := found.bundle(base, len(found.Versions)-1, false)
	b["recoveryId"] = base + "/deletedsecrets/" + found.Name
	return http.StatusOK, b, s.saveSecret(found)
}

func (s *Server) saveSecret(changed *secret) error {
	return s.Store.Update(func(tx *store.Tx) error { return tx.Put(secrets, strings.ToLower(changed.Name), changed) })
}

// setSecret executes Set Secret, which adds a version.
func (s *Server) setSecret(base, name string, body []byte) (int, any, error) {
	id := uuid.New()
	version := secretVersion{Version: hex.EncodeToString(id[:]), Created: s.Now()}
	if err := json.Unmarshal(body, &version.secretParameters); err != nil || version.Value == nil {
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "The request has no value.")
	}
	begins, ends := version.Attributes.Begins, version.Attributes.Ends
	switch {
	case len(*version.Value) > maxSecret:
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "The value has more than %d bytes.", maxSecret)
	case begins != nil && ends != nil && *ends <= *begins:
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "Property exp must be later than nbf.")
	}
	found := &secret{Name: name}
	err := s.Store.View(func(tx *store.Tx) error {
		_, err := tx.Get(secrets, strings.ToLower(name), found)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	if !found.Deleted.IsZero() {
		return 0, nil, newError(http.StatusConflict, "Conflict", "Secret %s is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the secret can only be recovered or purged.", name)
	}
	found.Versions = append(found.Versions, version)
	return http.StatusOK, found.bundle(base, len(found.Versions)-1, true), s.saveSecret(found)
}

// getSecret executes Get Secret; the version "" means the newest.
func (s *Server) getSecret(base, name, version string) (int, any, error) {
	found, err := s.findSecret(name, false)
	if err != nil {
		return 0, nil, err
	}
	i := len(found.Versions) - 1
	if version != "" {
		i = slices.IndexFunc(found.Versions, func(v secretVersion) bool { return v.Version == version })
	}
	switch {
	case i < 0:
		return 0, nil, newError(http.StatusNotFound, "SecretNotFound", "A secret with (name/id) %s/%s was not found in this key vault.", name, version)
	case found.Versions[i].Attributes.Enabled != nil && !*found.Versions[i].Attributes.Enabled:
		return 0, nil, newError(http.StatusForbidden, "Forbidden", "Operation get is not allowed on a disabled secret.")
	}
	return http.StatusOK, found.bundle(base, i, true), nil
}

// listSecrets executes Get Secrets, and listVersions Get Secret Versions. Neither returns values.
func (s *Server) listSecrets(base string) (int, any, error) {
	value := []any{}
	err := s.Store.View(func(tx *store.Tx) error {
		all, err := store.All[secret](tx, secrets, "")
		for _, found := range all {
			if found.Deleted.IsZero() {
				b := found.bundle(base, len(found.Versions)-1, false)
				b["id"] = base + "/secrets/" + found.Name
				value = append(value, b)
			}
		}
		return err
	})
	return http.StatusOK, map[string]any{"value": value}, err
}

func (s *Server) listVersions(base, name string) (int, any, error) {
	found, err := s.findSecret(name, false)
	value := []any{}
	for i := range found.Versions {
		value = append(value, found.bundle(base, i, false))
	}
	return http.StatusOK, map[string]any{"value": value}, err
}

// bundle returns the representation of a version.
func (s *secret) bundle(base string, i int, withValue bool) map[string]any {
	v := &s.Versions[i]
	attributes := map[string]any{"enabled": v.Attributes.Enabled == nil || *v.Attributes.Enabled, "created": v.Created.Unix(), "updated": v.Created.Unix(),
		"recoveryLevel": recoveryLevel, "recoverableDays": recoverableDays}
	for name, at := range map[string]*int64{"nbf": v.Attributes.Begins, "exp": v.Attributes.Ends} {
		if at != nil {
			attributes[name] = *at
		}
	}
	b := map[string]any{"id": base + "/secrets/" + s.Name + "/" + v.Version, "attributes": attributes, "tags": v.Tags, "contentType": v.ContentType}
	if withValue {
		b["value"] = *v.Value
	}
	if !s.Deleted.IsZero() {
		b["deletedDate"], b["scheduledPurgeDate"] = s.Deleted.Unix(), s.Deleted.AddDate(0, 0, recoverableDays).Unix()
	}
	return b
}
