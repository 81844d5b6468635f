package login

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// refreshBefore is how long before its end an access token is replaced. Azure's pipelines request another token as early.
const refreshBefore = 5 * time.Minute

// Credential supplies the tokens of a login. It implements azcore.TokenCredential, and is safe for concurrent use.
type Credential struct {
	store *Store
	login *Login
	// again signs the person in again with the claims of a challenge; nil if there is no terminal.
	again func(ctx context.Context, asked Request) (*Login, error)
	now   func() time.Time
}

// NewCredential returns a Credential. again may be nil.
func NewCredential(store *Store, login *Login, again func(ctx context.Context, asked Request) (*Login, error)) *Credential {
	return &Credential{store: store, login: login, again: again, now: time.Now}
}

// GetToken implements azcore.TokenCredential. Claims make the person sign in again.
func (c *Credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if options.Claims != "" {
		return c.stepUp(ctx, options.Claims)
	}
	current, err := c.read()
	if err != nil {
		return azcore.AccessToken{}, err
	}
	if c.left(current) > refreshBefore {
		return token(current), nil
	}
	return c.refreshed(ctx)
}

// left returns how long the access token of a login is valid.
func (c *Credential) left(l *Login) time.Duration { return l.Expires.Sub(c.now()) }

func token(l *Login) azcore.AccessToken {
	return azcore.AccessToken{Token: l.AccessToken, ExpiresOn: l.Expires}
}

// read reads the login, which another process may have changed or removed.
func (c *Credential) read() (*Login, error) {
	current, err := read(c.store.path(c.login))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &RequiredError{fmt.Sprintf("%s has logged out; run `hcpctl login`", c.login.Name)}
	}
	return current, err
}

// refreshed returns a token that one process at a time requests. While the issuer cannot be reached, the current token is used until it ends.
func (c *Credential) refreshed(ctx context.Context) (azcore.AccessToken, error) {
	unlock, err := c.store.lock(c.login)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	defer unlock()
	current, err := c.read()
	if err != nil {
		return azcore.AccessToken{}, err
	}
	if c.left(current) > refreshBefore {
		return token(current), nil // another process refreshed it
	}
	client, err := NewClient(current.Application)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	defer client.http.CloseIdleConnections()
	err = client.refresh(ctx, current)
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &unreachable) && c.left(current) > 0:
		return token(current), nil
	case err != nil:
		return azcore.AccessToken{}, err
	}
	return token(current), c.store.write(current)
}

// stepUp signs the person in again with claims and stores the new tokens.
func (c *Credential) stepUp(ctx context.Context, claims string) (azcore.AccessToken, error) {
	if c.again == nil {
		return azcore.AccessToken{}, &RequiredError{fmt.Sprintf("run `hcpctl login --as %s --claims-challenge %s` in a terminal, then repeat the command",
			c.login.Name, base64.StdEncoding.EncodeToString([]byte(claims)))}
	}
	renewed, err := c.again(ctx, Request{Claims: claims, Name: c.login.Name})
	if err != nil {
		return azcore.AccessToken{}, err
	}
	if renewed.ObjectID != c.login.ObjectID || renewed.TenantID != c.login.TenantID {
		return azcore.AccessToken{}, &RequiredError{fmt.Sprintf("%s signed in, but the command acts as %s; repeat the command and sign in as %s", renewed.Name, c.login.Name, c.login.Name)}
	}
	return token(renewed), c.store.Save(renewed)
}
