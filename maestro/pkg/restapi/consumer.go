package restapi

import (
	"net/http"
	"time"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

type consumer struct {
	ID        string            `json:"id,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Href      string            `json:"href,omitempty"`
	Name      string            `json:"name,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	CreatedAt *time.Time        `json:"created_at,omitempty"`
	UpdatedAt *time.Time        `json:"updated_at,omitempty"`
}

func presentConsumer(c *resource.Consumer) consumer {
	return consumer{
		ID: c.ID, Kind: "Consumer", Href: root + "/consumers/" + c.ID, Name: c.Name, Labels: c.Labels,
		CreatedAt: &c.CreatedAt, UpdatedAt: &c.UpdatedAt,
	}
}

func (a *api) listConsumers(r *http.Request) (int, any, error) {
	page, err := pageOf(r)
	if err != nil {
		return 0, nil, err
	}
	found, total, err := a.o.Store.Consumers(r.Context(), page)
	if err != nil {
		return 0, nil, err
	}
	out := list[consumer]{Kind: "ConsumerList", Page: page.Page, Size: len(found), Total: total, Items: []consumer{}}
	for _, c := range found {
		out.Items = append(out.Items, presentConsumer(c))
	}
	return http.StatusOK, out, nil
}

func (a *api) createConsumer(r *http.Request) (int, any, error) {
	var in consumer
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if in.ID != "" {
		return 0, nil, resource.Errorf(maestroapi.ReasonMalformed, "id must be empty")
	}
	c, err := a.o.Store.CreateConsumer(r.Context(), in.Name, in.Labels)
	if err != nil {
		return 0, nil, err
	}
	a.o.Registered()
	return http.StatusCreated, presentConsumer(c), nil
}

func (a *api) getConsumer(r *http.Request) (int, any, error) {
	c, err := a.o.Store.Consumer(r.Context(), r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, presentConsumer(c), nil
}

func (a *api) patchConsumer(r *http.Request) (int, any, error) {
	var in struct {
		Labels *map[string]string `json:"labels"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if in.Labels == nil {
		return a.getConsumer(r)
	}
	c, err := a.o.Store.RelabelConsumer(r.Context(), r.PathValue("id"), *in.Labels)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, presentConsumer(c), nil
}

func (a *api) deleteConsumer(r *http.Request) (int, any, error) {
	if err := a.o.Store.DeleteConsumer(r.Context(), r.PathValue("id")); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, nil
}
