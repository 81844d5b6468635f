package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// Seed is what is there without anybody having made it through the emulator: what a region's infrastructure brings.
type Seed struct {
	// Resources are put in order, if they are not there.
	Resources []SeedResource `json:"resources,omitempty"`
	// Issuers are the certificate issuers of the vault.
	Issuers []string `json:"issuers,omitempty"`
	// Containers are of Blob Storage; their accounts come with them.
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
	Name    string `json:"name"`
	// Access is empty, or blob for blobs that everybody may read.
	Access string `json:"access,omitempty"`
}

// ReadSeed reads a JSON file; an unknown field is refused.
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

// sow applies the seed through the services themselves, so that it is checked as everything is.
func (e *Emulator) sow(seed Seed) error {
	for _, c := range seed.Containers {
		if !slices.Contains(e.blob.Accounts, c.Account) {
			e.blob.Accounts = append(e.blob.Accounts, c.Account)
		}
		if _, err := e.blob.MakeContainer(c.Account, c.Name, c.Access); err != nil {
			return fmt.Errorf("making container %s of the seed: %w", c.Name, err)
		}
	}
	for _, r := range seed.Resources {
		if there, err := e.has(r.ID); err != nil || there {
			if err != nil {
				return err
			}
			continue
		}
		body, err := json.Marshal(map[string]any{"location": r.Location, "properties": r.Properties})
		if err != nil {
			return err
		}
		answer := httptest.NewRecorder()
		e.arm.ServeHTTP(answer, httptest.NewRequest(http.MethodPut, "https://seed"+r.ID+"?api-version="+r.APIVersion, strings.NewReader(string(body))))
		if answer.Code >= http.StatusBadRequest {
			return fmt.Errorf("making %s of the seed: %s", r.ID, answer.Body)
		}
	}
	return nil
}

func (e *Emulator) has(id string) (found bool, err error) {
	err = e.store.View(func(tx *store.Tx) (err error) {
		found, err = tx.Get("resources", strings.ToLower(id), &arm.Resource{})
		return err
	})
	return found, err
}

// Leftovers names everything that is there beside the seed and what was assumed: the ids of resources, certificates and
// blobs, and the associations of assumed subnets.
func (e *Emulator) Leftovers() ([]string, error) {
	seeded := map[string]bool{}
	for _, r := range e.options.Seed.Resources {
		seeded[strings.ToLower(r.ID)] = true
	}
	left := []string{}
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
					left = append(left, fmt.Sprintf("%s with %v", r.ID, group["id"]))
				}
			default:
				left = append(left, r.ID)
			}
		}
		for _, bucket := range []string{"certificates", "blobs"} {
			err := tx.Scan(bucket, "", func(key string, _ func(any) error) error {
				if !strings.HasPrefix(key, "issuer:") {
					left = append(left, bucket+"/"+key)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return left, err
}
