package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/msi-dataplane/pkg/dataplane"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// principalTag is the tag of a credential with the principal ID of its identity. An identity that a customer creates again has another one.
const principalTag = "hcpmesh-principal"

// operatorCredential is the credential of the identity of one operator of a control plane.
type operatorCredential struct {
	operator, id, secret string
	// ends and renews are those of the newest version in the vault; zero if it has none of this identity.
	ends, renews time.Time
	// issued is a new credential that is not in the vault yet.
	issued *dataplane.UserAssignedIdentityCredentials
}

// operatorCredentials returns the credentials that the control plane needs, with the names under which the HostedCluster expects them.
func (a *attempt) operatorCredentials() []*operatorCredential {
	var all []*operatorCredential
	for _, operator := range fleet.ControlPlaneOperators() {
		if id := a.cluster.Spec.GetPlatform().GetControlPlaneOperators()[operator]; id != "" {
			all = append(all, &operatorCredential{operator: operator, id: id, secret: a.cluster.CredentialName(operator)})
		}
	}
	return all
}

// storeCredentials makes the vault have a valid credential of each identity of the control plane. The first attempt requests all of them from
// the data plane of managed identities, without reading the vault. Later attempts request those that the vault does not have, or that are due
// for renewal. A credential that is refused or unusable hides no other one: the others are stored, and the error names it.
func (a *attempt) storeCredentials(ctx context.Context) error {
	vault, err := a.Clients.Secrets()
	if err != nil {
		return err
	}
	all := a.operatorCredentials()
	if a.step.Done || a.step.Attempts > 0 {
		if err := concurrently(all, func(c *operatorCredential) error { return a.readStored(ctx, vault, c) }); err != nil {
			return err
		}
	}
	due := slices.DeleteFunc(slices.Clone(all), func(c *operatorCredential) bool { return a.Now().Before(c.renews) })
	refused, failed := a.issue(ctx, due)
	a.outcome.Facts = map[string]string{fleet.AzureIdentitiesRefused: strings.Join(refused, ", ")}
	if err := concurrently(due, func(c *operatorCredential) error { return a.storeIssued(ctx, vault, c) }); err != nil {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return failed
	}
	for _, c := range all {
		earliest(&a.outcome.Expires, c.ends)
		earliest(&a.outcome.Renew, c.renews)
	}
	a.done()
	return nil
}

func earliest(at *time.Time, other time.Time) {
	if at.IsZero() || other.Before(*at) {
		*at = other
	}
}

// readStored reads the validity of the credential in the vault, and not the credential.
func (a *attempt) readStored(ctx context.Context, vault Secrets, c *operatorCredential) error {
	newest, err := newestVersion(ctx, vault, c.secret)
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("read the secret %s: %w", c.secret, err)
	}
	if newest == nil || newest.Attributes.Expires == nil || newest.Tags[principalTag] == nil || *newest.Tags[principalTag] != a.azure.PrincipalID(c.id) {
		return nil
	}
	// A secret with an unreadable tag is replaced.
	if renews, err := timeOf(newest.Tags[dataplane.RenewAfterKeyVaultTag]); err == nil {
		c.ends, c.renews = *newest.Attributes.Expires, renews
	}
	return nil
}

// newestVersion returns the newest version of a secret, without its value; nil if it has none.
func newestVersion(ctx context.Context, vault Secrets, name string) (newest *azsecrets.SecretProperties, err error) {
	err = eachPage(ctx, vault.NewListSecretPropertiesVersionsPager(name, nil), func(page azsecrets.ListSecretPropertiesVersionsResponse) error {
		for _, version := range page.Value {
			if at := version.Attributes; at != nil && at.Created != nil && (newest == nil || !at.Created.Before(*newest.Attributes.Created)) {
				newest = version
			}
		}
		return nil
	})
	return newest, err
}

func timeOf(text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, errors.New("it is missing")
	}
	return time.Parse(time.RFC3339, *text)
}

// issue requests credentials from the data plane of managed identities, all with one request. If that is refused, it requests one after the other,
// so that an identity that is refused hides no other one. It returns the properties of the refused ones, and an error that names them.
func (a *attempt) issue(ctx context.Context, wanted []*operatorCredential) (refused []string, failed error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	client, err := a.Clients.IdentityCredentials(a.cluster.Spec.GetIdentityUrl())
	if err != nil {
		return nil, err
	}
	request := func(wanted []*operatorCredential) error {
		var ids []string
		for _, c := range wanted {
			if !slices.Contains(ids, c.id) {
				ids = append(ids, c.id)
			}
		}
		issued, err := client.GetUserAssignedIdentitiesCredentials(ctx, dataplane.UserAssignedIdentitiesRequest{IdentityIDs: ids})
		if err != nil {
			return err
		}
		for _, c := range wanted {
			for i := range issued.ExplicitIdentities {
				if id := issued.ExplicitIdentities[i].ResourceID; id != nil && strings.EqualFold(*id, c.id) {
					c.issued = &issued.ExplicitIdentities[i]
				}
			}
		}
		return nil
	}
	err = request(wanted)
	together := err == nil
	if !together && !isRefusal(err) {
		return nil, fmt.Errorf("request credentials of the control plane's identities: %w", err)
	}
	var problems []string
	for _, c := range wanted {
		if !together {
			if err = request([]*operatorCredential{c}); err != nil && !isRefusal(err) {
				return nil, fmt.Errorf("request the credential of the identity of operator %s: %w", c.operator, err)
			}
		}
		if err == nil {
			err = a.checkIssued(c)
		}
		if err != nil {
			c.issued = nil
			refused = append(refused, fleet.ControlPlaneProperty(c.operator))
			problems = append(problems, fmt.Sprintf("the identity %s of operator %s: %s", c.id, c.operator, describe(err)))
		}
		err = nil
	}
	if len(problems) > 0 {
		failed = fmt.Errorf("no usable credential: %s", strings.Join(problems, "; "))
	}
	return refused, failed
}

// isRefusal reports whether the data plane refuses an identity, and not the service.
func isRefusal(err error) bool {
	return hasStatus(err, http.StatusBadRequest) || isNotFound(err) || hasStatus(err, http.StatusConflict)
}

// checkIssued returns an error that names the first field because of which an issued credential is not usable for its identity.
func (a *attempt) checkIssued(c *operatorCredential) error {
	issued := c.issued
	if issued == nil {
		return errors.New("the response does not have it")
	}
	for _, id := range []struct {
		field string
		got   *string
		want  string
	}{{"client_id", issued.ClientID, a.azure.ClientID(c.id)}, {"object_id", issued.ObjectID, a.azure.PrincipalID(c.id)}} {
		if id.got == nil || !strings.EqualFold(*id.got, id.want) {
			return fmt.Errorf("the credential has another %s than the identity: the identity was created again, or the credential belongs to another one", id.field)
		}
	}
	for field, value := range map[string]*string{"client_secret": issued.ClientSecret, "tenant_id": issued.TenantID, "authentication_endpoint": issued.AuthenticationEndpoint,
		"cannot_renew_after": issued.CannotRenewAfter} {
		if value == nil || *value == "" {
			return fmt.Errorf("the credential has no %s", field)
		}
	}
	times := map[string]time.Time{}
	for field, value := range map[string]*string{"not_before": issued.NotBefore, "not_after": issued.NotAfter, "renew_after": issued.RenewAfter} {
		at, err := timeOf(value)
		if err != nil {
			return fmt.Errorf("the field %s of the credential is not a time of RFC 3339", field)
		}
		times[field] = at
	}
	switch begins, ends := times["not_before"], times["not_after"]; {
	case !begins.Before(ends):
		return errors.New("the credential ends (not_after) before it begins (not_before)")
	case !a.Now().Before(ends):
		return errors.New("the credential has ended (not_after)")
	case times["renew_after"].After(ends):
		return errors.New("the credential ends (not_after) before it may be renewed (renew_after)")
	}
	c.ends, c.renews = times["not_after"], times["renew_after"]
	return nil
}

// storeIssued stores an issued credential in the form of the published client. A secret of this name that was deleted is recovered first, because it
// reserves the name.
func (a *attempt) storeIssued(ctx context.Context, vault Secrets, c *operatorCredential) error {
	if c.issued == nil {
		return nil
	}
	_, wanted, err := dataplane.FormatUserAssignedIdentityCredentialsForStorage(c.secret, *c.issued)
	if err != nil {
		return fmt.Errorf("the credential of operator %s cannot be stored", c.operator) // the error may contain the credential
	}
	wanted.Tags[ownerTag], wanted.Tags[principalTag] = to.Ptr(a.cluster.UID), to.Ptr(a.azure.PrincipalID(c.id))
	_, err = vault.SetSecret(ctx, c.secret, wanted, nil)
	if hasStatus(err, http.StatusConflict) {
		if _, err := vault.RecoverDeletedSecret(ctx, c.secret, nil); err != nil && !isNotFound(err) && !hasStatus(err, http.StatusConflict) {
			return fmt.Errorf("recover the secret %s: %w", c.secret, err)
		}
		return fmt.Errorf("store the secret %s: the vault recovers a deleted secret with this name first", c.secret)
	}
	if err != nil {
		return fmt.Errorf("store the secret %s: %w", c.secret, err)
	}
	return nil
}

// removeCredentials deletes the credentials of all operators. The vault keeps a deleted secret for its retention period, and purges it then.
func (a *attempt) removeCredentials(ctx context.Context) error {
	vault, err := a.Clients.Secrets()
	if err != nil {
		return err
	}
	err = concurrently(fleet.ControlPlaneOperators(), func(operator string) error {
		name := a.cluster.CredentialName(operator)
		if _, err := vault.DeleteSecret(ctx, name, nil); err != nil && !isNotFound(err) {
			return fmt.Errorf("delete the secret %s: %w", name, err)
		}
		return nil
	})
	return a.finish(err)
}
