package frontdoor

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// userCodeParameter is the parameter of that page with the code.
const userCodeParameter = "user_code"

// authorizeDevice responds to a device that asks for codes (RFC 8628, section 3.2), in the form of Entra's responses.
func (d *FrontDoor) authorizeDevice(tenant string, r *http.Request) *response {
	r.Body = http.MaxBytesReader(nil, r.Body, maxTokenRequest)
	if err := r.ParseForm(); err != nil {
		return oauthError(http.StatusBadRequest, "invalid_request", "the request is not a form")
	}
	device, err := d.options.Tokens.AuthorizeDevice(tenant, r.PostForm)
	var failure *token.SignInError
	switch {
	case errors.Is(err, token.ErrInvalidClient):
		return oauthError(http.StatusUnauthorized, "invalid_client", "client_id: no public application of this tenant has this ID")
	case errors.As(err, &failure):
		return oauthError(http.StatusBadRequest, failure.Code, failure.Description)
	case err != nil:
		return oauthError(http.StatusInternalServerError, "server_error", "the device could not be authorized")
	}
	page := d.options.PublicURL + "/" + tenant + "/" + devicePath
	answer := newResponse(http.StatusOK, map[string]any{
		"device_code": device.Code, "user_code": device.UserCode, "verification_uri": page,
		"verification_uri_complete": page + "?" + url.Values{userCodeParameter: {device.UserCode}}.Encode(),
		"expires_in":                int(token.DeviceLifetime.Seconds()), "interval": int(token.DeviceInterval.Seconds()),
		"message": fmt.Sprintf("To sign in, open %s in a browser and enter the code %s.", page, device.UserCode),
	})
	answer.header = map[string]string{"Cache-Control": "no-store"}
	return answer
}

// signInDevice asks for the code of a device and for the person who signs in to it. The person must confirm with a form of this page, because
// somebody else may have sent a link with a code of another device (RFC 8628, section 5.4).
func (d *FrontDoor) signInDevice(w http.ResponseWriter, r *http.Request, tenant string) {
	entered := r.Form.Get(userCodeParameter)
	if entered == "" {
		d.page(w, http.StatusOK, signInPage{Title: "Enter the code of your device", Text: "The program that asks you to sign in shows the code.", AskCode: true})
		return
	}
	asked, userCode, err := d.options.Tokens.DeviceSignIn(tenant, entered)
	status, refusal := http.StatusOK, ""
	if err == nil && r.Method == http.MethodPost {
		err = d.options.Tokens.DecideDevice(tenant, userCode, r.PostForm.Get(personParameter), r.PostForm.Get(passwordParameter))
		if status, refusal = refusePassword(w, err); refusal != "" {
			err = nil
		} else if err == nil {
			done := signInPage{Title: "You are signed in to " + asked.Application, Text: "Return to the program. You can close this window."}
			if r.PostForm.Get(personParameter) == "" {
				done = signInPage{Title: "Nobody is signed in", Text: "The program with this code gets no access."}
			}
			d.page(w, http.StatusOK, done)
			return
		}
	}
	if err != nil {
		d.page(w, http.StatusBadRequest, signInPage{Title: "The code is not accepted", Text: err.Error() + ".", AskCode: true})
		return
	}
	d.page(w, status, signInPage{Title: "Choose who signs in to " + asked.Application, Code: userCode, People: asked.People,
		Text: refusal + "Continue only if the program that you started shows the code " + userCode + ". " + passwords + confirmation(asked)})
}
