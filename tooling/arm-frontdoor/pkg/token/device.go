package token

import (
	"crypto/rand"
	"errors"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"time"
)

// DeviceGrant is the grant type with which a device gets the tokens of a person (RFC 8628, section 3.4).
const DeviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// The limits of device authorizations.
const (
	// DeviceLifetime is how long a person may take to enter the code of a device, and maxDevices bounds the number of devices that wait.
	DeviceLifetime = 15 * time.Minute
	maxDevices     = 1000
	// DeviceInterval is how long a device waits between two requests.
	DeviceInterval = time.Second
)

// The errors of devices that wait (RFC 8628, section 3.5).
var (
	ErrPending  = errors.New("nobody has entered the code of the device yet")
	ErrSlowDown = errors.New("the device asks too often")
	ErrDeclined = errors.New("the person declined the sign-in")
)

// Device is a device authorization (RFC 8628, section 3.2).
type Device struct {
	// Code identifies the authorization to the issuer, and UserCode to people.
	Code, UserCode string
}

// device is the state of a device authorization.
type device struct {
	signIn   SignIn
	userCode string
	expires  time.Time
	// polled is when the device asked last.
	polled time.Time
	// person signed in, if approved. declined is true if the person refused.
	person             Client
	approved, declined bool
}

// userCodeLetters are the letters of user codes: no vowels, so that no words appear, and nothing that looks alike (RFC 8628, section 6.1).
const userCodeLetters = "BCDFGHJKLMNPQRSTVWXZ"

// userCodeSize is the number of letters of a user code, in two groups.
const userCodeSize = 8

// newUserCode returns a random user code, for example BDWP-HQPK.
func newUserCode() string {
	code := make([]byte, 0, userCodeSize+1)
	for n := range userCodeSize {
		if n == userCodeSize/2 {
			code = append(code, '-')
		}
		index, _ := rand.Int(rand.Reader, big.NewInt(int64(len(userCodeLetters)))) // never fails
		code = append(code, userCodeLetters[index.Int64()])
	}
	return string(code)
}

// normalUserCode returns a user code as it was shown, from what a person entered: letter case and separators do not matter.
func normalUserCode(entered string) string {
	letters := strings.Map(func(r rune) rune {
		if strings.ContainsRune(userCodeLetters, r) {
			return r
		}
		return -1
	}, strings.ToUpper(entered))
	if len(letters) != userCodeSize {
		return ""
	}
	return letters[:userCodeSize/2] + "-" + letters[userCodeSize/2:]
}

// AuthorizeDevice begins a device authorization. The error is ErrInvalidClient, or a *SignInError.
func (i *Issuer) AuthorizeDevice(tenant string, form url.Values) (Device, error) {
	application := i.application(tenant, form.Get("client_id"))
	if application == nil || !application.Public {
		return Device{}, ErrInvalidClient
	}
	s := SignIn{tenant: tenant, client: *application, Application: application.Name, audience: strings.TrimSuffix(resourceScope(form.Get("scope")), "/.default")}
	var err error
	s.Contexts, err = requestedContexts(form.Get("claims"))
	switch {
	case err != nil:
		return Device{}, &SignInError{"invalid_request", err.Error()}
	case !slices.Contains(strings.Fields(form.Get("scope")), "openid"):
		return Device{}, &SignInError{"invalid_scope", "scope: openid is required"}
	case !slices.Contains(application.Audiences, s.audience):
		return Device{}, &SignInError{"invalid_scope", "scope: the application gets no tokens for this resource"}
	}
	s.People = i.people(tenant, s.audience)
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	for known, waiting := range i.devices {
		if !now.Before(waiting.expires) {
			delete(i.devices, known)
		}
	}
	if len(i.devices) >= maxDevices {
		return Device{}, &SignInError{"temporarily_unavailable", "too many devices wait"}
	}
	created := Device{Code: rand.Text(), UserCode: newUserCode()}
	for i.deviceOf(created.UserCode) != nil {
		created.UserCode = newUserCode()
	}
	i.devices[created.Code] = &device{signIn: s, userCode: created.UserCode, expires: now.Add(DeviceLifetime)}
	return created, nil
}

// deviceOf returns the device with a user code that waits for a person, or nil. The caller holds the mutex.
func (i *Issuer) deviceOf(userCode string) *device {
	for _, waiting := range i.devices {
		if waiting.userCode == userCode && !waiting.approved && !waiting.declined && i.now().Before(waiting.expires) {
			return waiting
		}
	}
	return nil
}

// errUserCode is the error for a user code that no device has.
var errUserCode = errors.New("no device has this code. Codes are valid for 15 minutes")

// DeviceSignIn returns the sign-in of the device with a user code, and the code as it was shown.
func (i *Issuer) DeviceSignIn(tenant, entered string) (s SignIn, userCode string, err error) {
	userCode = normalUserCode(entered)
	i.mu.RLock()
	defer i.mu.RUnlock()
	waiting := i.deviceOf(userCode)
	if waiting == nil || !strings.EqualFold(waiting.signIn.tenant, tenant) {
		return SignIn{}, "", errUserCode
	}
	return waiting.signIn, userCode, nil
}

// DecideDevice signs the person with an object ID and a password in to the device with a user code. An empty object ID declines the sign-in. Each
// device is decided once.
func (i *Issuer) DecideDevice(tenant, entered, objectID, password string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	waiting := i.deviceOf(normalUserCode(entered))
	if waiting == nil || !strings.EqualFold(waiting.signIn.tenant, tenant) {
		return errUserCode
	}
	if objectID == "" {
		waiting.declined = true
		return nil
	}
	person, err := i.person(&waiting.signIn, objectID, password)
	if err != nil {
		return err
	}
	waiting.person, waiting.approved = person, true
	return nil
}

// RedeemDevice returns the tokens of the person who signed in to a device, once. The error is ErrPending, ErrSlowDown, ErrDeclined, ErrInvalidGrant or
// ErrInvalidClient.
func (i *Issuer) RedeemDevice(tenant, clientID, text string) (UserTokens, error) {
	client := i.personal(tenant, clientID, "")
	if client == nil {
		return UserTokens{}, ErrInvalidClient
	}
	waiting, err := i.pollDevice(tenant, client, text)
	if err != nil {
		return UserTokens{}, err
	}
	return i.userTokens(client, waiting.person, waiting.signIn.audience, "", waiting.signIn.Contexts)
}

// pollDevice returns a device to which a person signed in, and removes it.
func (i *Issuer) pollDevice(tenant string, client *Client, text string) (*device, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	waiting, now := i.devices[text], i.now()
	if waiting == nil || waiting.signIn.client.ClientID != client.ClientID || !strings.EqualFold(waiting.signIn.tenant, tenant) || !now.Before(waiting.expires) {
		return nil, ErrInvalidGrant
	}
	early := now.Sub(waiting.polled) < DeviceInterval/2 // a device's clock and the network vary
	waiting.polled = now
	switch {
	case waiting.declined:
		delete(i.devices, text)
		return nil, ErrDeclined
	case waiting.approved:
		delete(i.devices, text)
		return waiting, nil
	case early:
		return nil, ErrSlowDown
	}
	return nil, ErrPending
}
