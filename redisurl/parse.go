package redisurl

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
)

// Parse returns the options for lockcore.NewFromOptions, or redis.NewUniversalClient. The error is a
// *noonlock.ConfigError and contains no user and no password.
func Parse(text string) (*redis.UniversalOptions, error) {
	const encoded = "percent-encoded where it has special characters: %40 for @, %2F for /, %3F for ?, %23 for #, %25 for %"
	scheme, rest, _ := strings.Cut(text, "://")
	// The last @ ends the password. An @ after a / ? or # shows that the password contains one of these, unencoded.
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		return nil, refuse("the user or password", "not encoded", encoded)
	}
	plain, topology, hasTopology := strings.Cut(strings.ToLower(scheme), "+")
	sentinel, cluster := topology == "sentinel", topology == "cluster"
	if hasTopology && !sentinel && !cluster || plain != "redis" && plain != "rediss" && (plain != "unix" || hasTopology) {
		return nil, refuse("the scheme", "missing or unknown",
			"redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://")
	}
	userinfo, hosts := "", rest
	end := strings.IndexAny(rest+"/", "/?#")
	if i := strings.LastIndex(rest[:end], "@"); i >= 0 {
		userinfo, hosts = rest[:i], rest[i+1:]
	}
	end = strings.IndexAny(hosts+"/", "/?#")
	hostList := strings.Split(hosts[:end], ",")
	if len(hostList) > 1 && !hasTopology {
		return nil, refuse("the hosts", "several", "one, unless the scheme is that of Sentinel or of a cluster")
	}
	// go-redis gets a URL of one server without secrets, so its errors show none.
	u, err := url.Parse(plain + "://" + hostList[0] + hosts[end:])
	if err != nil {
		return nil, refuse("the URL", "not valid", "a host, a path and parameters, and the user and password "+encoded)
	}
	o := &redis.UniversalOptions{IsClusterMode: cluster}
	if sentinel {
		query := u.Query()
		for name, to := range map[string]*string{"master": &o.MasterName, "sentinel_username": &o.SentinelUsername, "sentinel_password": &o.SentinelPassword} {
			*to = query.Get(name)
			query.Del(name)
		}
		u.RawQuery = query.Encode()
		if o.MasterName == "" {
			return nil, refuse("the parameter master", "missing", "the name of the primary that the Sentinels watch")
		}
	}
	single, err := redis.ParseURL(u.String())
	if err != nil {
		value := "refused by go-redis"
		if userinfo != "" && !strings.Contains(rest, "sentinel_") { // otherwise, err may quote a secret
			value += " (" + err.Error() + ")"
		}
		return nil, refuse("the URL", value, "a URL as in the documentation of redisurl")
	}
	if err := credentials(o, userinfo); err != nil {
		return nil, err
	}
	if cluster && single.DB != 0 {
		return nil, refuse("the database", "not 0", "0 in a cluster")
	}
	for _, host := range hostList {
		addr, err := address(plain, host, sentinel, single)
		if err != nil {
			return nil, err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if o.TLSConfig = single.TLSConfig; o.TLSConfig != nil && hasTopology {
		o.TLSConfig.ServerName = "" // each host must prove its own name
	}
	o.DB, o.Protocol, o.ClientName = single.DB, single.Protocol, single.ClientName
	o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = single.MaxRetries, single.MinRetryBackoff, single.MaxRetryBackoff
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = single.DialTimeout, single.ReadTimeout, single.WriteTimeout
	o.PoolSize, o.PoolTimeout, o.PoolFIFO = single.PoolSize, single.PoolTimeout, single.PoolFIFO
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = single.MinIdleConns, single.MaxIdleConns, single.MaxActiveConns
	o.ConnMaxIdleTime, o.ConnMaxLifetime = single.ConnMaxIdleTime, single.ConnMaxLifetime
	return o, nil
}

// credentials parses the part of the URL before the last @.
func credentials(o *redis.UniversalOptions, userinfo string) error {
	user, password, _ := strings.Cut(userinfo, ":")
	var userErr, passwordErr error
	o.Username, userErr = url.PathUnescape(user)
	o.Password, passwordErr = url.PathUnescape(password)
	switch {
	case userErr != nil || passwordErr != nil:
		return refuse("a % in the user or password", "not followed by two hexadecimal digits", "%25")
	case user != "" && password == "": // go-redis would connect as the user default
		return refuse("the password of the user", "missing", "user:password@, or :password@ for the user default")
	}
	return nil
}

// address returns the address of a host, with the default port. The address of a socket is in single.
func address(scheme, host string, sentinel bool, single *redis.Options) (string, error) {
	if scheme == "unix" {
		if host != "" {
			return "", refuse("the host", "present", "absent, as in unix:///run/redis.sock; the path of a socket begins with /")
		}
		return single.Addr, nil
	}
	u, err := url.Parse("redis://" + host)
	valid := err == nil && u.Hostname() != "" && (strings.Count(host, ":") < 2 || host[0] == '[')
	if valid && u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		valid = err == nil && n > 0
	}
	if !valid {
		return "", refuse("a host", "missing or not valid", "a name, an IPv4 address, or an IPv6 address in brackets, and a port from 1 to 65535")
	}
	port := u.Port()
	switch {
	case port != "":
	case sentinel:
		port = "26379"
	default:
		port = "6379"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func refuse(field, value, rule string) error {
	return &noonlock.ConfigError{Package: "redisurl", Field: field, Value: value, Rule: rule}
}
