package restapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// bundle is the schema of a resource.
type bundle struct {
	ID              string            `json:"id"`
	Kind            string            `json:"kind"`
	Href            string            `json:"href"`
	Name            string            `json:"name"`
	ConsumerName    string            `json:"consumer_name"`
	Version         int64             `json:"version"`
	CreatedAt       time.Time         `json:"created_at"`
	UpdatedAt       time.Time         `json:"updated_at"`
	DeletedAt       *time.Time        `json:"deleted_at,omitempty"`
	Metadata        json.RawMessage   `json:"metadata,omitempty"`
	Manifests       []json.RawMessage `json:"manifests,omitempty"`
	DeleteOption    json.RawMessage   `json:"delete_option,omitempty"`
	ManifestConfigs []json.RawMessage `json:"manifest_configs,omitempty"`
	Status          json.RawMessage   `json:"status,omitempty"`
}

func presentBundle(r *resource.Resource) (bundle, error) {
	var spec struct {
		Manifests       []json.RawMessage `json:"manifests"`
		DeleteOption    json.RawMessage   `json:"deleteOption"`
		ManifestConfigs []json.RawMessage `json:"manifestConfigs"`
	}
	if err := json.Unmarshal(r.Spec, &spec); err != nil {
		return bundle{}, fmt.Errorf("bundle of resource %s: %w", r.ID, err)
	}
	status, err := event.StatusView(r)
	if err != nil {
		return bundle{}, err
	}
	b := bundle{
		ID: r.ID, Kind: "ResourceBundle", Href: root + "/resource-bundles/" + r.ID, Name: r.ID, ConsumerName: r.Consumer,
		Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Metadata: r.Metadata,
		Manifests: spec.Manifests, DeleteOption: spec.DeleteOption, ManifestConfigs: spec.ManifestConfigs, Status: status,
	}
	if !r.DeletedAt.IsZero() {
		b.DeletedAt = &r.DeletedAt
	}
	return b, nil
}

func (a *api) listBundles(r *http.Request) (int, any, error) {
	page, err := pageOf(r)
	if err != nil {
		return 0, nil, err
	}
	found, total, err := a.o.Store.Resources(r.Context(), page)
	if err != nil {
		return 0, nil, err
	}
	out := list[bundle]{Kind: "ResourceBundleList", Page: page.Page, Size: len(found), Total: total, Items: []bundle{}}
	for _, found := range found {
		b, err := presentBundle(found)
		if err != nil {
			return 0, nil, err
		}
		out.Items = append(out.Items, b)
	}
	return http.StatusOK, out, nil
}

func (a *api) getBundle(r *http.Request) (int, any, error) {
	found, err := a.o.Store.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	b, err := presentBundle(found)
	return http.StatusOK, b, err
}

// deleteBundle also responds with 204 if the bundle does not exist, because deletions may be repeated.
func (a *api) deleteBundle(r *http.Request) (int, any, error) {
	consumer, missing, err := a.o.Store.Delete(r.Context(), r.PathValue("id"), "", 0, nil, "")
	if err != nil {
		return 0, nil, err
	}
	if !missing {
		a.o.Deleted(consumer)
	}
	return http.StatusNoContent, nil, nil
}
