package emulator

import (
	"net/http"
	"strconv"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// The service's limits for provisioned throughput, in RU/s.
const (
	minManualRU = 400
	minAutoRU   = 1000
	stepAutoRU  = 1000
	maxRU       = 1_000_000
)

// throughput parses the headers with the throughput of a new database or container.
func throughput(req *request) (store.Throughput, error) {
	var t store.Throughput
	if h := req.r.Header.Get(headerThroughput); h != "" {
		n, err := strconv.Atoi(h)
		if err != nil {
			return t, badRequest("The header x-ms-offer-throughput is not a number.")
		}
		t.Manual = n
		return t, checkThroughput(t)
	}
	h := req.r.Header.Get(headerAutoscale)
	if h == "" {
		return t, nil
	}
	v, err := document.Parse([]byte(h))
	if err != nil {
		return t, badRequest("The header x-ms-cosmos-offer-autopilot-settings is not JSON.")
	}
	t = autoscale(v)
	return t, checkThroughput(t)
}

// autoscale parses an autoscale throughput.
func autoscale(v document.Value) store.Throughput {
	return store.Throughput{
		AutoMax:   int(v.Get("maxThroughput").Num),
		Increment: int(v.Get("autoUpgradePolicy").Get("throughputPolicy").Get("incrementPercent").Num),
	}
}

// checkThroughput returns an error for a throughput that the service rejects.
func checkThroughput(t store.Throughput) error {
	switch {
	case t.Manual > maxRU || t.AutoMax > maxRU:
		return badRequest("The offer is above %d RU/s.", maxRU)
	case t.AutoMax != 0 && (t.AutoMax < minAutoRU || t.AutoMax%stepAutoRU != 0):
		return badRequest("The maximum of an autoscale offer must be a multiple of %d RU/s.", stepAutoRU)
	case t.AutoMax == 0 && (t.Manual < minManualRU || t.Manual%100 != 0):
		return badRequest("The offer should have a throughput of at least %d RU/s in steps of 100.", minManualRU)
	}
	return nil
}

// offerValue returns the representation of an offer.
func offerValue(o *store.Offer) document.Value {
	content := document.Value{Kind: document.Object}
	if o.AutoMax > 0 {
		auto := document.Value{Kind: document.Object}.With("maxThroughput", numberValue(float64(o.AutoMax)))
		if o.Increment > 0 {
			policy := document.Value{Kind: document.Object}.With("incrementPercent", numberValue(float64(o.Increment)))
			auto = auto.With("autoUpgradePolicy", document.Value{Kind: document.Object}.With("throughputPolicy", policy))
		}
		content = content.With("offerAutopilotSettings", auto)
	} else {
		content = content.With("offerThroughput", numberValue(float64(o.Manual)))
	}
	return document.Value{Kind: document.Object, Obj: []document.Member{
		{Name: "resource", Value: document.FromString(o.Resource)},
		{Name: "offerType", Value: document.FromString("Invalid")},
		{Name: "offerResourceId", Value: document.FromString(o.ResourceID)},
		{Name: "offerVersion", Value: document.FromString("V2")},
		{Name: "content", Value: content},
		{Name: "id", Value: document.FromString(o.RID)},
		{Name: "_rid", Value: document.FromString(o.RID)},
		{Name: "_self", Value: document.FromString("offers/" + o.RID + "/")},
		{Name: "_etag", Value: document.FromString(o.ETag())},
		{Name: "_ts", Value: numberValue(float64(o.TS))},
	}}
}

// offers serves /offers and /offers/{rid}.
func (s *Server) offers(req *request) error {
	if len(req.segments) == 1 {
		if req.operation != "query" && req.operation != "list" {
			return methodNotAllowed(req)
		}
		var all []document.Value
		for _, o := range s.store.Offers() {
			all = append(all, offerValue(o))
		}
		return s.queryResources(req, "", "Offers", all)
	}
	o, err := s.store.Offer(req.segments[1])
	if err != nil {
		return err
	}
	switch req.operation {
	case "read":
	case "replace":
		v, err := req.json()
		if err != nil {
			return err
		}
		content := v.Get("content")
		t := store.Throughput{Manual: int(content.Get("offerThroughput").Num)}
		if auto := content.Get("offerAutopilotSettings"); auto.Kind == document.Object {
			t = autoscale(auto)
		}
		if err := checkThroughput(t); err != nil {
			return err
		}
		if (t.AutoMax > 0) != (o.AutoMax > 0) {
			return badRequest("An offer cannot be changed between manual and autoscale throughput.")
		}
		if o, err = s.store.ReplaceOffer(req.r.Context(), o.RID, t, req.r.Header.Get("If-Match")); err != nil {
			return err
		}
	default:
		return methodNotAllowed(req)
	}
	req.header(headerETag, o.ETag())
	req.header(headerReplacePending, "false")
	req.header(headerMinThroughput, strconv.Itoa(minManualRU))
	return req.respond(http.StatusOK, 2, document.Append(nil, offerValue(o)))
}
