package alerts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Silences reads and changes the silences of an Alertmanager through version 2 of its API.
type Silences struct {
	base   string
	client *http.Client
}

// NewSilences returns Silences of the Alertmanager at a URL.
func NewSilences(base string, transport http.RoundTripper) *Silences {
	return &Silences{strings.TrimSuffix(base, "/") + "/api/v2", &http.Client{Transport: &bounded{transport}}}
}

// silence is a silence in the form of Alertmanager.
type silence struct {
	ID     string `json:"id,omitempty"`
	Status *struct {
		State adminv1.SilenceState `json:"state"`
	} `json:"status,omitempty"`
	Matchers  []matcher `json:"matchers"`
	StartsAt  time.Time `json:"startsAt"`
	EndsAt    time.Time `json:"endsAt"`
	CreatedBy string    `json:"createdBy"`
	Comment   string    `json:"comment"`
}

// matcher is a matcher in the form of Alertmanager. An absent IsEqual means true.
type matcher struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	IsRegex bool   `json:"isRegex"`
	IsEqual *bool  `json:"isEqual,omitempty"`
}

// List returns the silences that have not expired, those that end first at the beginning.
func (s *Silences) List(ctx context.Context) ([]adminv1.Silence, error) {
	var stored []silence
	if err := s.do(ctx, http.MethodGet, "/silences", nil, &stored); err != nil {
		return nil, err
	}
	list := []adminv1.Silence{}
	for _, v := range stored {
		if shown := v.response(); shown.State != adminv1.SilenceExpired {
			list = append(list, shown)
		}
	}
	slices.SortStableFunc(list, func(a, b adminv1.Silence) int {
		return cmp.Or(a.EndTime.Compare(b.EndTime), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Get returns a silence, also an expired one.
func (s *Silences) Get(ctx context.Context, id string) (adminv1.Silence, error) {
	var stored silence
	err := s.do(ctx, http.MethodGet, "/silence/"+url.PathEscape(id), nil, &stored)
	return stored.response(), err
}

// Create stores a silence and returns its ID. All matchers are equalities.
func (s *Silences) Create(ctx context.Context, wanted adminv1.Silence) (id string, err error) {
	equal := true
	body := silence{StartsAt: wanted.StartTime, EndsAt: wanted.EndTime, CreatedBy: wanted.CreatedBy, Comment: wanted.Comment}
	for _, m := range wanted.Matchers {
		body.Matchers = append(body.Matchers, matcher{Name: m.Name, Value: m.Value, IsEqual: &equal})
	}
	var created struct {
		SilenceID string `json:"silenceID"`
	}
	if err := s.do(ctx, http.MethodPost, "/silences", body, &created); err != nil {
		return "", err
	}
	if created.SilenceID == "" {
		return "", unanswered(fmt.Errorf("the answer has no ID of the silence"))
	}
	return created.SilenceID, nil
}

// End ends a silence.
func (s *Silences) End(ctx context.Context, id string) error {
	return s.do(ctx, http.MethodDelete, "/silence/"+url.PathEscape(id), nil, nil)
}

func unanswered(cause error) error {
	return apierror.New(apierror.Unavailable, "Alertmanager did not answer.").WithCause(cause)
}

// do sends a request and reads the response.
func (s *Silences) do(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.base+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return unanswered(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return apierror.New(apierror.NotFound, "Alertmanager has no such silence.")
	case response.StatusCode >= http.StatusBadRequest:
		return unanswered(fmt.Errorf("%s %s: %s", method, path, response.Status))
	case into == nil:
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return unanswered(fmt.Errorf("%s %s: %w", method, path, err))
	}
	return nil
}

func (v silence) response() adminv1.Silence {
	shown := adminv1.Silence{ID: v.ID, State: adminv1.SilenceExpired, Matchers: []adminv1.SilenceMatcher{}, StartTime: v.StartsAt.UTC(), EndTime: v.EndsAt.UTC(), CreatedBy: v.CreatedBy, Comment: v.Comment}
	if v.Status != nil {
		shown.State = v.Status.State
	}
	for _, m := range v.Matchers {
		shown.Matchers = append(shown.Matchers, adminv1.SilenceMatcher{Name: m.Name, Value: m.Value, Regex: m.IsRegex, Negative: m.IsEqual != nil && !*m.IsEqual})
	}
	return shown
}

// MarkSilenced sets which active silences match the alerts.
func MarkSilenced(firing []adminv1.Alert, silences []adminv1.Silence) {
	for _, s := range silences {
		if s.State != adminv1.SilenceActive {
			continue
		}
		for i := range firing {
			if matches(s.Matchers, firing[i]) {
				firing[i].SilencedBy = append(firing[i].SilencedBy, s.ID)
			}
		}
	}
}

// matches reports whether all matchers match an alert. An invalid regular expression matches nothing.
func matches(matchers []adminv1.SilenceMatcher, alert adminv1.Alert) bool {
	for _, m := range matchers {
		value := alert.Labels[m.Name]
		if m.Name == "alertname" {
			value = alert.Name
		}
		found := value == m.Value
		if m.Regex {
			expression, err := regexp.Compile("^(?:" + m.Value + ")$")
			if err != nil {
				return false
			}
			found = expression.MatchString(value)
		}
		if found == m.Negative {
			return false
		}
	}
	return len(matchers) > 0
}
