package login

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/oauth2"

	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// Device signs a person in who uses a browser on another machine. show gets the URL of the page and the code to enter there. Device waits until the
// person decides, or the code ends.
func (c *Client) Device(ctx context.Context, asked Request, show func(page, code string)) (*Login, error) {
	config, ctx, err := c.config(ctx, "")
	if err != nil {
		return nil, err
	}
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, fmt.Errorf("the issuer %s has no sign-in for machines without a browser; use `hcpctl login` without --device", c.application.Issuer)
	}
	var options []oauth2.AuthCodeOption
	if asked.Claims != "" {
		options = append(options, oauth2.SetAuthURLParam("claims", asked.Claims))
	}
	device, err := config.DeviceAuth(ctx, options...)
	if err != nil {
		return nil, c.failure(err)
	}
	show(device.VerificationURI, device.UserCode)
	token, err := config.DeviceAccessToken(ctx, device, options...)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &RequiredError{"nobody signed in before the code ended; run `hcpctl login` again"}
	}
	if err != nil {
		return nil, c.failure(err)
	}
	return c.login(token, func(idToken string) (authn.Person, error) { return c.verifier.VerifyDevice(ctx, idToken) })
}
