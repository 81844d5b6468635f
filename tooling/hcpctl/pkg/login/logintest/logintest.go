// Package logintest runs the issuer of local regions for tests of sign-ins, and acts as the browser of a person.
package logintest

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/login"
)

// Tenant is the tenant of the issuer.
const Tenant = "64dc69e4-d083-49fc-9569-ebece1dd1408"

// Issuer is a running issuer with the people oncall and approver.
type Issuer struct {
	// Application is that of hcpctl.
	Application login.Application
	// Away makes the issuer close connections without a response.
	Away atomic.Bool
	// Refreshes counts the requests with a refresh token.
	Refreshes atomic.Int32

	server *httptest.Server
	// passwords are those of the people.
	passwords map[string]string
}

// New starts an issuer, which stops at the end of the test.
func New(t *testing.T) *Issuer {
	t.Helper()
	i := &Issuer{passwords: map[string]string{}}
	dir := t.TempDir()
	door := httptest.NewUnstartedServer(nil)
	door.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	door.StartTLS()
	t.Cleanup(door.Close)
	i.server = door
	i.Application = login.Application{Issuer: door.URL + "/" + Tenant + "/v2.0", ClientID: "hcpctl", Audience: "https://admin.example", CAFile: filepath.Join(dir, "ca.crt")}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: door.Certificate().Raw})
	if err := os.WriteFile(i.Application.CAFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	clients := []token.Client{{TenantID: Tenant, ClientID: "hcpctl", ObjectID: "c", Name: "hcpctl", Public: true, Audiences: []string{i.Application.Audience}, RedirectURIs: []string{"http://127.0.0.1/signed-in"}}}
	for _, name := range []string{"oncall", "approver"} {
		i.passwords[name] = rand.Text()
		clients = append(clients, token.Client{TenantID: Tenant, ClientID: "hcpctl", ClientSecret: i.passwords[name], ObjectID: name, Name: name + "@example.com", Groups: []string{"readers"}, Audiences: []string{i.Application.Audience}})
	}
	tokens, err := token.NewIssuer(door.URL, dir, clients, i.Application.Audience)
	if err != nil {
		t.Fatal(err)
	}
	subscriptions, err := frontdoor.OpenDirectory(filepath.Join(dir, "subscriptions.json"))
	if err != nil {
		t.Fatal(err)
	}
	arm, err := frontdoor.New(frontdoor.Options{PublicURL: door.URL, Location: "westus3", APIVersions: []string{"v"}, Frontend: "127.0.0.1:1", FrontendTLS: &tls.Config{MinVersion: tls.VersionTLS12},
		Tokens: tokens, Directory: subscriptions, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(arm.Close)
	door.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.Away.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.Method == http.MethodPost && r.ParseForm() == nil && r.PostForm.Get("grant_type") == "refresh_token" {
			i.Refreshes.Add(1)
		}
		arm.ServeHTTP(w, r)
	})
	return i
}

// load returns the status and the page of a request, and the URL to which it leads.
func (i *Issuer) load(method, target string, form url.Values) (page, location string, err error) {
	client := *i.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequest(method, target, strings.NewReader(form.Encode()))
	if err != nil {
		return "", "", err
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	response, err := client.Do(request)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode >= http.StatusBadRequest {
		err = errors.Join(err, fmt.Errorf("%s %s: %s", method, request.URL.Path, response.Status))
	}
	return string(body), response.Header.Get("Location"), err
}

// Choose opens the URL of a sign-in, signs a person in, and returns the URL to which the issuer leads.
func (i *Issuer) Choose(target, name string) (location string, err error) {
	page, location, err := i.load(http.MethodGet, target, nil)
	if err != nil || location != "" {
		return location, err
	}
	if !strings.Contains(page, name+"@example.com</button>") {
		return "", fmt.Errorf("the issuer does not offer %s: %s", name, page)
	}
	_, location, err = i.load(http.MethodPost, target, i.form(name))
	return location, err
}

// form returns the fields with which a person signs in.
func (i *Issuer) form(name string) url.Values {
	return url.Values{"hcpmesh_person": {name}, "hcpmesh_password": {i.passwords[name]}}
}

// Browser returns a function that acts as the browser of a person: it opens the URL of a sign-in, signs the person in, and returns to hcpctl.
func (i *Issuer) Browser(name string) func(target string) error {
	return func(target string) error {
		location, err := i.Choose(target, name)
		if err != nil {
			return err
		}
		_, _, err = i.load(http.MethodGet, location, nil)
		return err
	}
}

// Approve enters the code of a device on its page and chooses a person; an empty name declines.
func (i *Issuer) Approve(page, code, name string) error {
	form := i.form(name)
	form.Set("user_code", code)
	_, _, err := i.load(http.MethodPost, page, form)
	return err
}
