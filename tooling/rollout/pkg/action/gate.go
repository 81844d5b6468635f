package action

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// Gates checks the state of a deployment.
type Gates struct {
	HTTP HTTP
	// Hcpctl is the program that explains a region.
	Hcpctl string
}

// Check waits until the check of a gate succeeds or its time ends. The gate has no references any more.
func (g Gates) Check(ctx context.Context, gate definition.Gate, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(gate.Timeout))
	defer cancel()
	err := until(ctx, func(ctx context.Context) error {
		switch {
		case gate.HTTP != nil:
			return g.HTTP.expect(ctx, gate.HTTP.URL, gate.HTTP.Status)
		case gate.Metric != nil:
			return g.metric(ctx, *gate.Metric)
		case gate.Explain != nil:
			return g.explain(ctx, *gate.Explain, r)
		}
		return runCommand(ctx, r, gate.Command, shellParameters{}, r.Log)
	})
	if err != nil {
		// The gate has waited already, so its failure does not repeat the action.
		return &Error{ClassFailed, fmt.Errorf("gate %s: %w", gate.Name, err)}
	}
	return nil
}

// metric queries Prometheus once.
func (g Gates) metric(ctx context.Context, gate definition.MetricGate) error {
	response, err := g.HTTP.get(ctx, strings.TrimSuffix(gate.URL, "/")+"/api/v1/query?"+url.Values{"query": {gate.Query}}.Encode())
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
	if err != nil {
		return &Error{Unavailable, fmt.Errorf("reading the result of %s: %w", gate.Query, err)}
	}
	var answer struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		return &Error{ClassOfStatus(response.StatusCode), fmt.Errorf("querying %s: %s %s", gate.Query, response.Status, answer.Error)}
	}
	return within(gate, answer.Data.ResultType, answer.Data.Result)
}

// within compares the samples of a result with the limits.
func within(gate definition.MetricGate, kind string, result json.RawMessage) error {
	var samples [][2]any
	switch kind {
	case "vector":
		var vector []struct{ Value [2]any }
		if err := json.Unmarshal(result, &vector); err != nil {
			return fmt.Errorf("reading the result of %s: %w", gate.Query, err)
		}
		for _, element := range vector {
			samples = append(samples, element.Value)
		}
	case "scalar":
		samples = make([][2]any, 1)
		if err := json.Unmarshal(result, &samples[0]); err != nil {
			return fmt.Errorf("reading the result of %s: %w", gate.Query, err)
		}
	default:
		return fmt.Errorf("%s returned a %s; a gate needs a vector or a scalar", gate.Query, kind)
	}
	if len(samples) == 0 {
		return fmt.Errorf("%s returned no sample", gate.Query)
	}
	for _, sample := range samples {
		text, _ := sample[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%s returned %q, which is not a number", gate.Query, text)
		}
		if math.IsNaN(value) || gate.AtLeast != nil && value < *gate.AtLeast || gate.AtMost != nil && value > *gate.AtMost {
			return fmt.Errorf("%s is %s; %s", gate.Query, text, limits(gate))
		}
	}
	return nil
}

func limits(gate definition.MetricGate) string {
	var parts []string
	if gate.AtLeast != nil {
		parts = append(parts, "at least "+strconv.FormatFloat(*gate.AtLeast, 'g', -1, 64))
	}
	if gate.AtMost != nil {
		parts = append(parts, "at most "+strconv.FormatFloat(*gate.AtMost, 'g', -1, 64))
	}
	return "it must be " + strings.Join(parts, " and ")
}

// explain runs hcpctl and expects every component to be ready.
func (g Gates) explain(ctx context.Context, gate definition.ExplainGate, r Request) error {
	var out bytes.Buffer
	command := []string{g.Hcpctl, "explain", "-o", "json", "--admin-endpoint", gate.Endpoint, "--admin-audience", gate.Audience}
	if err := runCommand(ctx, r, command, shellParameters{}, &out); err != nil {
		return err
	}
	var explanation adminv1.RegionExplanation
	if err := json.Unmarshal(out.Bytes(), &explanation); err != nil {
		return fmt.Errorf("reading the explanation of the region: %w", err)
	}
	if len(explanation.Components) == 0 || explanation.Partial {
		return fmt.Errorf("admin could not read all layers of the region")
	}
	var away []string
	for _, component := range explanation.Components {
		if component.Away() {
			away = append(away, component.Name)
		}
	}
	if len(away) > 0 {
		return fmt.Errorf("components of the region are away: %s", strings.Join(away, ", "))
	}
	return nil
}
