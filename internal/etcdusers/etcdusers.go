// Package etcdusers gives each Kubernetes API server its own keys of an etcd that several API servers share. Each API server has an etcd
// user that may read and write only the keys below its prefix. etcd authenticates a user by the common name of its client certificate.
//
// Only the user Root can create users. It can read and write all keys, because etcd has no role that can do one and not the other.
package etcdusers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Root is the name of the user, and of its role, that may do everything.
const Root = "root"

// compactionKey contains the revision up to which API servers have compacted etcd. It is outside of their prefixes.
const compactionKey = "compact_rev_key"

// dialTimeout bounds one attempt to connect.
const dialTimeout = 5 * time.Second

// User is the etcd user of an API server.
type User struct {
	// Prefix is the API server's prefix, for example /mgmt-1. It is also the name of the user and of its role.
	Prefix string
	// Compacts is true if the API server compacts etcd. The others can only read how far etcd is compacted.
	Compacts bool
}

// permissions returns the keys that the user may read and write.
func (u User) permissions() []*authpb.Permission {
	first, end := keysBelow(u.Prefix)
	compaction := authpb.READ
	if u.Compacts {
		compaction = authpb.READWRITE
	}
	return []*authpb.Permission{
		{PermType: authpb.READWRITE, Key: []byte(first), RangeEnd: []byte(end)},
		{PermType: compaction, Key: []byte(compactionKey)},
	}
}

// keysBelow returns the range of the keys below a prefix. The prefix /a does not contain /ab.
func keysBelow(prefix string) (first, end string) {
	return prefix + "/", clientv3.GetPrefixRangeEnd(prefix + "/")
}

// Client manages users as Root. It is safe for concurrent use.
type Client struct{ etcd *clientv3.Client }

// Open returns a client of an etcd with the given client URLs, separated by commas. It does not connect yet. The configuration contains
// Root's certificate. The caller must Close the client.
func Open(servers string, config *tls.Config) (*Client, error) {
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(servers, ","),
		TLS:         config,
		DialTimeout: dialTimeout,
		Logger:      zap.NewNop(), // the client would log each retry in another format; errors are returned
	})
	if err != nil {
		return nil, fmt.Errorf("opening a client of etcd: %w", err)
	}
	return &Client{etcd}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.etcd.Close() }

// Enable makes etcd authenticate and authorize all its clients. Before that, a client with any certificate that etcd verifies can
// do everything.
func (c *Client) Enable(ctx context.Context) error {
	status, err := c.etcd.AuthStatus(ctx)
	if err != nil {
		return fmt.Errorf("reading whether etcd authenticates its clients: %w", err)
	}
	if status.Enabled {
		return nil
	}
	if _, err := c.etcd.RoleAdd(ctx, Root); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return fmt.Errorf("creating etcd's role %s: %w", Root, err)
	}
	if err := c.ensureUser(ctx, Root); err != nil {
		return err
	}
	if _, err := c.etcd.AuthEnable(ctx); err != nil {
		return fmt.Errorf("enabling etcd's authentication: %w", err)
	}
	return nil
}

// Ensure creates a user, or changes its permissions. It writes nothing if they are the same, because etcd rejects the requests of all
// users that are in progress while one changes. Their clients repeat them.
func (c *Client) Ensure(ctx context.Context, user User) error {
	if err := c.ensureRole(ctx, user); err != nil {
		return err
	}
	return c.ensureUser(ctx, user.Prefix)
}

func (c *Client) ensureRole(ctx context.Context, user User) error {
	failed := func(err error) error { return fmt.Errorf("creating etcd's role %s: %w", user.Prefix, err) }
	role, err := c.etcd.RoleGet(ctx, user.Prefix)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		role = &clientv3.AuthRoleGetResponse{}
		_, err = c.etcd.RoleAdd(ctx, user.Prefix)
	}
	if err != nil {
		return failed(err)
	}
	same := func(a, b *authpb.Permission) bool {
		return a.PermType == b.PermType && string(a.Key) == string(b.Key) && string(a.RangeEnd) == string(b.RangeEnd)
	}
	contains := func(permissions []*authpb.Permission, wanted *authpb.Permission) bool {
		return slices.ContainsFunc(permissions, func(p *authpb.Permission) bool { return same(p, wanted) })
	}
	wanted := user.permissions()
	for _, p := range role.Perm {
		if contains(wanted, p) {
			continue
		}
		if _, err := c.etcd.RoleRevokePermission(ctx, user.Prefix, string(p.Key), string(p.RangeEnd)); err != nil {
			return failed(err)
		}
	}
	for _, p := range wanted {
		if contains(role.Perm, p) {
			continue
		}
		if _, err := c.etcd.RoleGrantPermission(ctx, user.Prefix, string(p.Key), string(p.RangeEnd), clientv3.PermissionType(p.PermType)); err != nil {
			return failed(err)
		}
	}
	return nil
}

// ensureUser creates a user without a password and with the role of the same name.
func (c *Client) ensureUser(ctx context.Context, name string) error {
	failed := func(err error) error { return fmt.Errorf("creating etcd's user %s: %w", name, err) }
	user, err := c.etcd.UserGet(ctx, name)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		user = &clientv3.AuthUserGetResponse{}
		_, err = c.etcd.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})
	}
	if err != nil {
		return failed(err)
	}
	if slices.Contains(user.Roles, name) {
		return nil
	}
	if _, err := c.etcd.UserGrantRole(ctx, name, name); err != nil {
		return failed(err)
	}
	return nil
}

// Remove deletes a user and all keys below its prefix. It is idempotent. The API server must not run anymore.
func (c *Client) Remove(ctx context.Context, prefix string) error {
	if _, err := c.etcd.UserDelete(ctx, prefix); err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
		return fmt.Errorf("deleting etcd's user %s: %w", prefix, err)
	}
	if _, err := c.etcd.RoleDelete(ctx, prefix); err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return fmt.Errorf("deleting etcd's role %s: %w", prefix, err)
	}
	first, end := keysBelow(prefix)
	if _, err := c.etcd.Delete(ctx, first, clientv3.WithRange(end)); err != nil {
		return fmt.Errorf("deleting %s from etcd: %w", prefix, err)
	}
	return nil
}

// Read returns all keys below a prefix with their values. The prefix "" contains the keys of all API servers.
func (c *Client) Read(ctx context.Context, prefix string) (map[string][]byte, error) {
	first, end := keysBelow(prefix)
	response, err := c.etcd.Get(ctx, first, clientv3.WithRange(end))
	if err != nil {
		return nil, fmt.Errorf("reading %s from etcd: %w", first, err)
	}
	values := make(map[string][]byte, len(response.Kvs))
	for _, pair := range response.Kvs {
		values[string(pair.Key)] = pair.Value
	}
	return values, nil
}

// countPage is the number of values that CountValues reads at once.
const countPage = 100

// CountValues returns the number of keys below a prefix whose values begin with beginning. Values that are written meanwhile may not count.
func (c *Client) CountValues(ctx context.Context, prefix, beginning string) (int, error) {
	first, end := keysBelow(prefix)
	count := 0
	for {
		page, err := c.etcd.Get(ctx, first, clientv3.WithRange(end), clientv3.WithLimit(countPage))
		if err != nil {
			return 0, fmt.Errorf("reading %s from etcd: %w", first, err)
		}
		for _, pair := range page.Kvs {
			if bytes.HasPrefix(pair.Value, []byte(beginning)) {
				count++
			}
		}
		if !page.More {
			return count, nil
		}
		first = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// Users returns the names of all users.
func (c *Client) Users(ctx context.Context) ([]string, error) {
	response, err := c.etcd.UserList(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing etcd's users: %w", err)
	}
	return response.Users, nil
}
