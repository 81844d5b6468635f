package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"
)

// thing has the form of a model of a generated client.
type thing struct {
	Name *string    `json:"name,omitempty"`
	At   *time.Time `json:"at,omitempty"`
	Bits []*thing   `json:"bits,omitempty"`
}

func TestTheJudgeBites(t *testing.T) {
	j := &judge{required: map[string]map[string]bool{"thing": {"Name": true}}}
	for reason, c := range map[string]struct {
		body string
		good bool
	}{
		"all is there":                      {`{"name":"a","at":"2026-11-21T10:00:00Z","bits":[{"name":"b"}]}`, true},
		"the same instant, written longer":  {`{"name":"a","at":"2026-11-21T10:00:00.000Z"}`, true},
		"a field that the client lacks":     {`{"name":"a","color":"red"}`, false},
		"one further down":                  {`{"name":"a","bits":[{"name":"b","color":"red"}]}`, false},
		"a required field is missing":       {`{"at":"2026-11-21T10:00:00Z"}`, false},
		"one is missing further down":       {`{"name":"a","bits":[{}]}`, false},
		"null, which the client leaves out": {`{"name":"a","at":null}`, false},
	} {
		var value thing
		if err := json.Unmarshal([]byte(c.body), &value); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		if err := j.check(value, []byte(c.body)); (err == nil) != c.good {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestWhoPollsTooSoonIsFound(t *testing.T) {
	began := time.Now()
	for reason, c := range map[string]struct {
		pause time.Duration
		good  bool
	}{
		"as told":  {time.Second, true},
		"later":    {time.Minute, true},
		"too soon": {999 * time.Millisecond, false},
	} {
		r := &recorder{exchanges: []exchange{
			{method: http.MethodPut, path: "/cluster", retryAfter: time.Second, answered: began},
			{method: http.MethodGet, path: "/hcpOperationStatuses/1", sent: began.Add(c.pause)},
		}}
		if waited, err := r.heeded(); (err == nil) != c.good || c.good && waited != 1 {
			t.Errorf("%s: %d waited, %v", reason, waited, err)
		}
	}
}
