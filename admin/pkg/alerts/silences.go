package alerts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/wire"
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

// The limits of a list: silences that List returns, and bytes of one that is read.
const (
	maxSilences = 1000
	maxSilence  = 1 << 20
)

// List returns the silences that have not expired, those that end first at the beginning. more is true if there are more than 1000. It leaves out malformed
// silences, which ignored has.
func (s *Silences) List(ctx context.Context) (list []adminv1.Silence, more bool, ignored wire.Ignored, err error) {
	list = []adminv1.Silence{}
	shorten := func() {
		slices.SortStableFunc(list, func(a, b adminv1.Silence) int {
			return cmp.Or(a.EndTime.Compare(b.EndTime), cmp.Compare(a.ID, b.ID))
		})
		if len(list) > maxSilences {
			list, more = list[:maxSilences], true
		}
	}
	ignored, err = s.Each(ctx, func(one adminv1.Silence) {
		if list = append(list, one); len(list) == 2*maxSilences {
			shorten()
		}
	})
	if err != nil {
		return nil, false, wire.Ignored{}, err
	}
	shorten()
	return list, more, ignored, nil
}

// Each calls use with each silence that has not expired, and returns the malformed silences. It holds one silence at a time.
func (s *Silences) Each(ctx context.Context, use func(adminv1.Silence)) (ignored wire.Ignored, err error) {
	err = s.do(ctx, http.MethodGet, "/silences", nil, func(body io.Reader) error {
		stored, failure := wire.Stream(body, "", maxSilence)
		wire.Elements("silences", "id", stored, func(_ int, v silence) error {
			shown, err := v.response()
			if err == nil && shown.State != adminv1.SilenceExpired {
				use(shown)
			}
			return err
		}, ignored.Add)
		return failure()
	})
	return ignored, err
}

// Get returns a silence, also an expired one.
func (s *Silences) Get(ctx context.Context, id string) (adminv1.Silence, error) {
	var stored silence
	if err := s.do(ctx, http.MethodGet, "/silence/"+url.PathEscape(id), nil, decode(&stored)); err != nil {
		return adminv1.Silence{}, err
	}
	shown, err := stored.response()
	if err != nil {
		return adminv1.Silence{}, unanswered(fmt.Errorf("silence %s: %w", id, err))
	}
	return shown, nil
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
	if err := s.do(ctx, http.MethodPost, "/silences", body, decode(&created)); err != nil {
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

// decode returns a function that decodes a response.
func decode(into any) func(io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(io.LimitReader(body, maxSilence)).Decode(into) }
}

// do sends a request and reads the response with read, which may be nil.
func (s *Silences) do(ctx context.Context, method, path string, body any, read func(io.Reader) error) error {
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
	case read == nil:
		return nil
	}
	if err := read(response.Body); err != nil {
		return unanswered(fmt.Errorf("%s %s: %w", method, path, err))
	}
	return nil
}

// response returns the silence in the form of admin, or an error if it has no ID or no state.
func (v silence) response() (adminv1.Silence, error) {
	if v.ID == "" || v.Status == nil || v.Status.State == "" {
		return adminv1.Silence{}, errors.New("the silence has no ID or no state")
	}
	shown := adminv1.Silence{ID: v.ID, State: v.Status.State, Matchers: []adminv1.SilenceMatcher{}, StartTime: v.StartsAt.UTC(), EndTime: v.EndsAt.UTC(), CreatedBy: v.CreatedBy, Comment: v.Comment}
	for _, m := range v.Matchers {
		shown.Matchers = append(shown.Matchers, adminv1.SilenceMatcher{Name: m.Name, Value: m.Value, Regex: m.IsRegex, Negative: m.IsEqual != nil && !*m.IsEqual})
	}
	return shown, nil
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
