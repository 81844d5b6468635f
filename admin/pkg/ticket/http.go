package ticket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

const (
	// timeout limits a question. A request to admin takes at most 30 seconds.
	timeout = 5 * time.Second
	// maxAnswer limits the body of a response in bytes, maxText each of its texts and maxLink the link.
	maxAnswer = 64 << 10
	maxText   = 256
	maxLink   = 2048
)

// HTTP asks a validator over HTTPS: a POST of the Question as JSON, with a bearer token. The validator responds 200 with
// {"valid": true, "title": …, "link": …} or {"valid": false, "reason": …}. The question whether a ticket is still open is
// {"ticket": …, "check": "open"}, and its answers are {"open": true} and {"open": false, "reason": …}: the answer of a validator that
// does not know this question ends no elevation. Every other response means that it could not answer.
type HTTP struct {
	endpoint  string
	tokenFile string
	client    *http.Client
}

// NewHTTP returns an HTTP validator. The token is read from tokenFile for each question, so that the file may be replaced.
// transport must verify the certificate of the server.
func NewHTTP(endpoint, tokenFile string, transport http.RoundTripper) (*HTTP, error) {
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("%q is not an https URL", endpoint)
	}
	return &HTTP{endpoint: endpoint, tokenFile: tokenFile, client: &http.Client{
		Transport: transport, Timeout: timeout,
		// A redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Validate implements Validator.
func (h *HTTP) Validate(ctx context.Context, question Question) (Answer, error) {
	content, err := h.ask(ctx, question)
	var answer Answer
	if err == nil {
		answer, err = parse(content)
	}
	if err != nil {
		return Answer{}, apierror.New(apierror.Unavailable, "The ticket validator %s did not answer: %s. Nothing is granted without its answer; in an emergency, use --emergency.",
			h.endpoint, cause(err)).WithCause(err)
	}
	return answer, nil
}

// checkOpen is the question of Check.
type checkOpen struct {
	Ticket string `json:"ticket"`
	// Check is "open".
	Check string `json:"check"`
}

// Check implements Validator.
func (h *HTTP) Check(ctx context.Context, ticket string) (State, error) {
	content, err := h.ask(ctx, checkOpen{Ticket: ticket, Check: "open"})
	var state State
	if err == nil {
		state, err = parseState(content)
	}
	if err != nil {
		return State{}, apierror.New(apierror.Unavailable, "The ticket validator %s did not answer whether a ticket is open: %s.", h.endpoint, cause(err)).WithCause(err)
	}
	return state, nil
}

// cause returns the description of an error without the URL, which the message has.
func cause(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		if failed.Timeout() {
			return fmt.Sprintf("no response within %s", timeout)
		}
		return failed.Err.Error()
	}
	return err.Error()
}

// ask sends a question and returns the body of the response.
func (h *HTTP) ask(ctx context.Context, question any) ([]byte, error) {
	token, err := os.ReadFile(h.tokenFile)
	if err != nil {
		return nil, errors.New("the token cannot be read")
	}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := h.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it responded with status %d", response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, errors.New("its response was cut off")
	}
	if len(content) > maxAnswer {
		return nil, fmt.Errorf("its response has more than %d bytes", maxAnswer)
	}
	return content, nil
}

// parse returns the answer in the body of a response. A body that does not state whether the ticket is valid is an error.
func parse(content []byte) (Answer, error) {
	var body struct {
		Valid               *bool
		Title, Link, Reason string
	}
	if err := json.Unmarshal(content, &body); err != nil || body.Valid == nil {
		return Answer{}, errors.New("its response does not have the form {\"valid\": true or false}")
	}
	answer := Answer{Valid: *body.Valid, Title: bounded(body.Title), Reason: bounded(body.Reason)}
	if u, err := url.Parse(body.Link); err == nil && u.Scheme == "https" && u.Host != "" && len(body.Link) <= maxLink {
		answer.Link = body.Link
	}
	return answer, nil
}

// parseState returns the state in the body of a response. A body that does not state whether the ticket is open is an error.
func parseState(content []byte) (State, error) {
	var body struct {
		Open   *bool
		Reason string
	}
	if err := json.Unmarshal(content, &body); err != nil || body.Open == nil {
		return State{}, errors.New("its response does not have the form {\"open\": true or false}")
	}
	return State{Open: *body.Open, Reason: bounded(body.Reason)}, nil
}

// bounded returns valid UTF-8 of at most maxText bytes.
func bounded(text string) string {
	if len(text) > maxText {
		cut := maxText
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strings.ToValidUTF8(text, "\ufffd")
}
