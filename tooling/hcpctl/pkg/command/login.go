package command

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/login"
)

// loginFlags select the issuer of a login.
type loginFlags struct{ application login.Application }

func (f *loginFlags) add(e *environment, c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.application.Issuer, "issuer", os.Getenv("HCPMESH_ISSUER"), "`URL` of the issuer, for example https://login.microsoftonline.com/TENANT/v2.0 (default: the local region, or $HCPMESH_ISSUER)")
	flags.StringVar(&f.application.ClientID, "client-id", os.Getenv("HCPMESH_CLIENT_ID"), "`ID` of the application of hcpctl at the issuer (default: the local region, or $HCPMESH_CLIENT_ID)")
	flags.StringVar(&f.application.Audience, "admin-audience", os.Getenv("HCPMESH_ADMIN_AUDIENCE"), "`audience` of the tokens (default: the local region, or $HCPMESH_ADMIN_AUDIENCE)")
	flags.StringVar(&e.admin.Engineer, "as", os.Getenv("HCPMESH_ENGINEER"), "`name` of the engineer (default $HCPMESH_ENGINEER)")
}

// complete returns the application of the flags. Without --issuer it is that of the local region.
func (f *loginFlags) complete(e *environment) (login.Application, error) {
	application := f.application
	if application.CAFile != "" {
		absolute, err := filepath.Abs(application.CAFile)
		if err != nil {
			return login.Application{}, err
		}
		application.CAFile = absolute
	}
	if application.Issuer != "" {
		return application, nil
	}
	if application.Audience != "" {
		return login.Application{}, invalid("--issuer is required with --admin-audience")
	}
	endpoints, err := e.endpoints()
	if err != nil {
		return login.Application{}, err
	}
	if endpoints.AdminIssuer == "" {
		return login.Application{}, errors.New("the issuer of this region has no pages for people; use --as to select an engineer")
	}
	application.Issuer, application.Audience = endpoints.AdminIssuer, endpoints.AdminAudience
	application.ClientID = cmp.Or(application.ClientID, endpoints.AdminClientID)
	application.CAFile = cmp.Or(application.CAFile, endpoints.CAFile)
	return application, nil
}

func (e *environment) login() *cobra.Command {
	var flags loginFlags
	var device bool
	var challenge string
	c := &cobra.Command{
		Use: "login", Short: "Sign in to the identity provider of the engineers",
		Long: `Sign in to the identity provider of the engineers: Microsoft Entra, or that of the local region.

hcpctl opens a browser, which returns to a port of 127.0.0.1. With --device, or if this machine has no display, open the printed URL on any
machine and enter the code. Afterwards, commands for SREs act as you. They refresh the tokens, which are in a file that only you can read.
A region outside of this machine needs --issuer, --client-id and --admin-audience.

If admin requires that you sign in again (a claims challenge), commands in a terminal do that by themselves, and other commands print the
command to run.`,
		RunE: func(c *cobra.Command, _ []string) error {
			claims, err := decodeChallenge(challenge)
			if err != nil {
				return err
			}
			application, err := flags.complete(e)
			if err != nil {
				return err
			}
			store, err := login.UserStore()
			if err != nil {
				return err
			}
			signedIn, err := e.signIn(c.Context(), application, login.Request{Claims: claims, Name: e.admin.Engineer}, device || !e.hasBrowser())
			if err != nil {
				return err
			}
			if !signedIn.Is(e.admin.Engineer) {
				return fmt.Errorf("%s signed in, and not %s: nothing is stored; sign out at the identity provider, or change --as", signedIn.Name, e.admin.Engineer)
			}
			if err := store.Save(signedIn); err != nil {
				return err
			}
			_, err = fmt.Fprintf(e.out, "signed in to %s as %s\n", signedIn.Issuer, signedIn.Name)
			return err
		},
	}
	flags.add(e, c)
	c.Flags().StringVar(&flags.application.Scope, "scope", "", "`scope` of the tokens (default: the audience followed by /.default)")
	c.Flags().StringVar(&flags.application.CAFile, "ca-file", "", "`file` with the certificate authorities of the issuer (default: the local region, or those of the system)")
	c.Flags().BoolVar(&device, "device", false, "print a code to enter in a browser on any machine")
	c.Flags().StringVar(&challenge, "claims-challenge", "", "`claims` that admin requires, in base64, as an error message prints them")
	return c
}

// decodeChallenge returns the claims request of a challenge.
func decodeChallenge(challenge string) (string, error) {
	claims, err := base64.StdEncoding.DecodeString(challenge)
	if err != nil {
		return "", invalid("--claims-challenge: not base64; copy the value from the message of the command")
	}
	return string(claims), nil
}

func (e *environment) logout() *cobra.Command {
	var flags loginFlags
	var all bool
	c := &cobra.Command{
		Use: "logout", Short: "Remove the tokens of your logins from this machine",
		Long: `Remove the tokens of your logins for the region from this machine; with --as only those of one engineer, with --all those of all regions.

Tokens that were issued stay valid until they expire, after about an hour. Your sign-in at the identity provider continues in the browser until you
end it at the printed URL.`,
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := login.UserStore()
			if err != nil {
				return err
			}
			match := func(l *login.Login) bool { return l.Is(e.admin.Engineer) }
			if !all {
				application, err := flags.complete(e)
				if err != nil {
					return err
				}
				match = func(l *login.Login) bool { return l.Issuer == application.Issuer && l.Is(e.admin.Engineer) }
			}
			found, err := store.List(match)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return notFound("there is no login; `hcpctl logout --all` removes those of all regions")
			}
			for _, l := range found {
				if err := store.Remove(l); err != nil {
					return err
				}
				fmt.Fprintf(e.out, "logged out of %s as %s\n", l.Issuer, l.Name)
			}
			client, err := login.NewClient(found[0].Application)
			if err != nil {
				return err
			}
			if target := client.SignOutURL(c.Context()); target != "" {
				fmt.Fprintf(e.err, "your sign-in in the browser continues; end it at %s\n", target)
			}
			return nil
		},
	}
	flags.add(e, c)
	c.Flags().BoolVar(&all, "all", false, "remove the logins of all regions")
	return c
}

// signIn signs a person in, with a browser on this machine or on another one.
func (e *environment) signIn(ctx context.Context, application login.Application, asked login.Request, device bool) (*login.Login, error) {
	client, err := login.NewClient(application)
	if err != nil {
		return nil, err
	}
	if device {
		return client.Device(ctx, asked, func(page, code string) {
			fmt.Fprintf(e.err, "open %s in a browser on any machine and enter the code %s\n", page, code)
		})
	}
	return client.Browser(ctx, asked, func(target string) {
		fmt.Fprintf(e.err, "sign in with the browser; if none opens, open this URL on this machine, or use `hcpctl login --device`:\n%s\n", target)
		if err := e.browse(target); err != nil {
			fmt.Fprintf(e.err, "no browser was opened: %v\n", err)
		}
	})
}

// selectLogin makes a client use a stored login, if there is one for the issuer, the audience and the engineer. An empty issuer matches all. It reports
// whether there is one.
func (e *environment) selectLogin(options *adminclient.Options, issuer string) (bool, error) {
	store, err := login.UserStore()
	if err != nil {
		return false, nil // without a home folder there are no logins
	}
	found, err := store.List(func(l *login.Login) bool {
		return l.Audience == options.Audience && (issuer == "" || l.Issuer == issuer) && l.Is(options.Engineer)
	})
	if err != nil || len(found) == 0 {
		return false, err
	}
	var again func(context.Context, login.Request) (*login.Login, error)
	if e.hasTerminal() {
		again = func(ctx context.Context, asked login.Request) (*login.Login, error) {
			fmt.Fprintf(e.err, "admin requires that %s signs in again\n", asked.Name)
			return e.signIn(ctx, found[0].Application, asked, !e.hasBrowser())
		}
	}
	options.Credential, options.CredentialsFile = login.NewCredential(store, found[0], again), ""
	// A kubeconfig must go on with this engineer after another one has signed in.
	e.admin.Engineer = found[0].Name
	return true, nil
}

// terminalOfUser reports whether a person can react to a message: the input and the messages of the command are those of a terminal.
func terminalOfUser() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd()))
}

// displayOfUser reports whether this machine can probably show a browser.
func displayOfUser() bool {
	return runtime.GOOS != "linux" || os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || os.Getenv("BROWSER") != ""
}

// openBrowser opens a URL in the browser of the user, which may outlive hcpctl. The URL contains no secret: the code that it leads to is useless without
// the verifier of the sign-in.
func openBrowser(target string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	command := exec.Command(program, target)
	if err := command.Start(); err != nil {
		return err
	}
	return command.Process.Release()
}
