package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// Seed lists the resources that exist when the emulator starts, in place of a region's infrastructure as code.
type Seed struct {
	// Resources are created in order if they do not exist.
	Resources []SeedResource `json:"resources,omitempty"`
	// Roles are role definitions besides Azure's built-in ones. Assignments give principals roles; nobody else has rights before a
	// principal with the right to do so assigns a role.
	Roles       []rbac.Role          `json:"roles,omitempty"`
	Assignments []arm.SeedAssignment `json:"assignments,omitempty"`
	// ResourceProviders are the object IDs of the first-party applications of resource providers, which get credentials of managed identities.
	ResourceProviders []string `json:"resourceProviders,omitempty"`
	// Vault is the resource ID of the vault, the scope of roles for its data.
	Vault string `json:"vault,omitempty"`
	// Issuers lists the certificate issuers of the vault.
	Issuers []string `json:"issuers,omitempty"`
	// Containers lists the containers of Blob Storage. Their accounts are created as well.
	Containers []SeedContainer `json:"containers,omitempty"`
}

// SeedResource is a resource of Resource Manager.
type SeedResource struct {
	ID         string         `json:"id"`
	APIVersion string         `json:"apiVersion"`
	Location   string         `json:"location,omitempty"`
	Properties map[string]any `json:"properties,omitempty"`
}

// SeedContainer is a container of Blob Storage.
type SeedContainer struct {
	Account string `json:"account"`
	// AccountID is the resource ID of the account, the scope of roles for its data.
	AccountID string `json:"accountId,omitempty"`
	Name      string `json:"name"`
	// Access is the public access: empty, or blob.
	Access string `json:"access,omitempty"`
	// Immutability is the immutability policy; nil for none. A later seed cannot remove it or make it shorter.
	Immutability *blob.Immutability `json:"immutability,omitempty"`
}

// ReadSeed reads a seed from a JSON file. It rejects unknown fields.
func ReadSeed(path string) (Seed, error) {
	file, err := os.Open(path)
	if err != nil {
		return Seed{}, fmt.Errorf("reading the seed: %w", err)
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	var seed Seed
	if err := decoder.Decode(&seed); err != nil {
		return Seed{}, fmt.Errorf("reading the seed %s: %w", path, err)
	}
	return seed, nil
}

// applySeed creates the resources of the seed with the services themselves, so that they are validated.
func (e *Emulator) applySeed(seed Seed) error {
	if err := e.arm.CheckAssignments(); err != nil {
		return err
	}
	for _, c := range seed.Containers {
		e.blob.Accounts[c.Account] = c.AccountID
		if _, err := e.blob.PutContainer(c.Account, c.Name, c.Access); err != nil {
			return fmt.Errorf("creating container %s of the seed: %w", c.Name, err)
		}
		if err := e.blob.SetImmutability(c.Account, c.Name, c.Immutability); err != nil {
			return fmt.Errorf("setting the immutability policy of container %s of the seed: %w", c.Name, err)
		}
	}
	for _, r := range seed.Resources {
		if exists, err := e.exists(r.ID); err != nil || exists {
			if err != nil {
				return err
			}
			continue
		}
		body, err := json.Marshal(map[string]any{"location": r.Location, "properties": r.Properties})
		if err != nil {
			return err
		}
		response := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPut, "https://seed"+r.ID+"?api-version="+r.APIVersion, strings.NewReader(string(body)))
		e.arm.ServeHTTP(response, request.WithContext(rbac.NewContext(request.Context(), rbac.Emulator())))
		if response.Code >= http.StatusBadRequest {
			return fmt.Errorf("creating %s of the seed: %s", r.ID, response.Body)
		}
	}
	return nil
}

// exists reports whether the resource with an ID exists.
func (e *Emulator) exists(id string) (found bool, err error) {
	err = e.store.View(func(tx *store.Tx) (err error) {
		found, err = tx.Get("resources", strings.ToLower(id), &arm.Resource{})
		return err
	})
	return found, err
}

// Leftovers returns everything that is neither part of the seed nor assumed: the IDs of resources, certificates that are
// not deleted, secrets, blobs, and the associations of assumed subnets. Tests use it to find resources that were not deleted.
func (e *Emulator) Leftovers() ([]string, error) {
	seeded := map[string]bool{}
	for _, r := range e.options.Seed.Resources {
		seeded[strings.ToLower(r.ID)] = true
	}
	leftovers := []string{}
	err := e.store.View(func(tx *store.Tx) error {
		all, err := store.All[arm.Resource](tx, "resources", "")
		if err != nil {
			return err
		}
		for _, r := range all {
			switch apex := r.Name == "@" && seeded[strings.ToLower(r.ID[:max(0, strings.LastIndex(r.ID[:strings.LastIndex(r.ID, "/")], "/"))])]; {
			case seeded[strings.ToLower(r.ID)], apex:
			case r.Assumed:
				if group, ok := r.Properties["networkSecurityGroup"].(map[string]any); ok {
					leftovers = append(leftovers, fmt.Sprintf("%s with %v", r.ID, group["id"]))
				}
			default:
				leftovers = append(leftovers, r.ID)
			}
		}
		for _, bucket := range []string{"certificates", "secrets", "blobs"} {
			err := tx.Scan(bucket, "", func(key string, decode func(any) error) error {
				var deletable struct{ Deleted time.Time }
				if strings.HasPrefix(key, "issuer:") {
					return nil
				}
				if err := decode(&deletable); err != nil {
					return err
				}
				if deletable.Deleted.IsZero() {
					leftovers = append(leftovers, bucket+"/"+key)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return leftovers, err
}
