package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// returnPath is the path of the loopback redirect URI. The application of hcpctl registers http://127.0.0.1/signed-in; the port varies (RFC 8252,
// section 7.3).
const returnPath = "/signed-in"

// closeTimeout limits the response to the browser after a sign-in.
const closeTimeout = 2 * time.Second

// outcome is the result of a sign-in with a browser.
type outcome struct {
	login *Login
	err   error
}

// Browser signs a person in with a browser on this machine. show gets the URL to open. Browser listens on a random port of 127.0.0.1, and accepts one
// request: that with the state of this sign-in. It waits at most patience.
func (c *Client) Browser(ctx context.Context, asked Request, show func(target string)) (*Login, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the browser: %w", err)
	}
	host := listener.Addr().String()
	config, requests, err := c.config(ctx, "http://"+host+returnPath)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	redeem := func(query url.Values) (*Login, error) {
		if code := query.Get("error"); code != "" {
			return nil, &RefusedError{Code: code, Description: query.Get("error_description")}
		}
		token, err := config.Exchange(requests, query.Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			return nil, c.failure(err)
		}
		return c.login(token, func(idToken string) (authn.Person, error) { return c.verifier.Verify(requests, idToken, nonce) })
	}
	outcomes := make(chan outcome, 1)
	server := &http.Server{Handler: receiver(host, state, redeem, outcomes), ReadHeaderTimeout: closeTimeout, MaxHeaderBytes: 64 << 10}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(closing) != nil {
			_ = server.Close()
		}
		serving.Wait()
	}()
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("nonce", nonce), oauth2.SetAuthURLParam("response_mode", "query")}
	show(config.AuthCodeURL(state, append(options, asked.parameters()...)...))
	select {
	case done := <-outcomes:
		return done.login, done.err
	case <-ctx.Done():
		return nil, c.failure(ctx.Err())
	}
}

// parameters returns the parameters of an authorization request by which the person chooses an account, or signs in again with claims.
func (r Request) parameters() []oauth2.AuthCodeOption {
	prompt := "select_account"
	var options []oauth2.AuthCodeOption
	if r.Claims != "" {
		prompt = "login"
		options = append(options, oauth2.SetAuthURLParam("claims", r.Claims))
	}
	if r.Name != "" {
		options = append(options, oauth2.SetAuthURLParam("login_hint", r.Name))
	}
	return append(options, oauth2.SetAuthURLParam("prompt", prompt))
}

// receiver returns the handler of the redirect URI. Only the first request with the state is redeemed. Others, for example of web pages that guess the
// port, change nothing.
func receiver(host, state string, redeem func(url.Values) (*Login, error), outcomes chan<- outcome) http.Handler {
	var accepted atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Connection", "close")
		query := r.URL.Query()
		switch {
		case r.Host != host || r.URL.Path != returnPath || r.Method != http.MethodGet:
			http.Error(w, "There is nothing here.", http.StatusNotFound)
			return
		case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(state)) != 1:
			http.Error(w, "This is not the sign-in for which hcpctl waits.", http.StatusBadRequest)
			return
		case !accepted.CompareAndSwap(false, true):
			http.Error(w, "This sign-in was completed before.", http.StatusGone)
			return
		}
		signedIn, err := redeem(query)
		outcomes <- outcome{signedIn, err}
		header.Set("Content-Type", "text/html; charset=utf-8")
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			_ = returned.Execute(w, [2]string{"You are not signed in", "hcpctl shows the reason. You can close this window."})
			return
		}
		_ = returned.Execute(w, [2]string{"You are signed in to hcpctl", "You can close this window and return to the terminal."})
	})
}

var returned = template.Must(template.New("returned").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>{{index . 0}}</title></head>
<body><main><h1>{{index . 0}}</h1><p>{{index . 1}}</p></main></body></html>
`))
