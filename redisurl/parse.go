package redisurl

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/input"
)

// Parse returns the options for redis.NewUniversalClient. The error is a *ConfigError and
// contains no user and no password.
func Parse(text string) (*redis.UniversalOptions, error) {
	d, rest, ok := deploymentOf(text)
	switch {
	case strings.TrimSpace(text) != text:
		return nil, refuse("the first or last character", "a space or line break", "removed")
	case !ok:
		return nil, refuse("the scheme", "missing or unknown",
			"redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, refuse("a character", "a space or control character", "percent-encoded")
	}
	// The last @ ends the password. A later part is shown in errors, so no @ may follow
	// there: the / ? or # would be in the password.
	end := strings.IndexAny(rest+"/", "/?#")
	place, tail := rest[:end], rest[end:]
	switch {
	case strings.Contains(tail, "@"):
		return nil, refuse("a character before the last @", "a / ? or #",
			"percent-encoded in a user or password (%2F, %3F, %23); an @ after the hosts must be %40")
	case strings.Contains(tail, "#"):
		return nil, refuse("a character", "#", "%23")
	}
	path, query, _ := strings.Cut(tail, "?")
	o := &redis.UniversalOptions{IsClusterMode: d.cluster}
	if d.tls {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if at := strings.LastIndex(place, "@"); at >= 0 {
		d.hasAt = true
		var err error
		if o.Username, o.Password, err = credentials(place[:at]); err != nil {
			return nil, err
		}
		place = place[at+1:]
	}
	if err := d.locate(o, place, path); err != nil {
		return nil, err
	}
	if err := d.configure(o, query, strings.Trim(path, "/") != "" && !d.socket); err != nil {
		return nil, err
	}
	return o, nil
}

// A deployment is what a scheme names.
type deployment struct {
	socket, sentinel, cluster, tls bool

	hasAt bool // its URL has an @
}

// shown returns a part of the URL for an error. If the @ is missing, the part may be a
// password, so then it returns only numbers.
func (d deployment) shown(part string) string {
	if d.hasAt || strings.Trim(part, "-0123456789") == "" {
		return input.Quote(part)
	}
	return "invalid"
}

// deploymentOf returns the deployment and what follows the scheme.
func deploymentOf(text string) (d deployment, rest string, ok bool) {
	scheme, rest, ok := strings.Cut(text, "://")
	switch strings.ToLower(scheme) {
	case "redis":
	case "rediss":
		d.tls = true
	case "unix":
		d.socket = true
	case "redis+sentinel":
		d.sentinel = true
	case "rediss+sentinel":
		d.sentinel, d.tls = true, true
	case "redis+cluster":
		d.cluster = true
	case "rediss+cluster":
		d.cluster, d.tls = true, true
	default:
		ok = false
	}
	return d, rest, ok
}

// credentials parses what is before the last @.
func credentials(text string) (user, password string, err error) {
	user, password, _ = strings.Cut(text, ":")
	user, userErr := url.PathUnescape(user)
	password, passwordErr := url.PathUnescape(password)
	switch {
	case userErr != nil || passwordErr != nil:
		return "", "", refuse("a % in the user or password", "not followed by two hexadecimal digits", "%25")
	case user != "" && password == "":
		// go-redis would connect as the user default.
		return "", "", refuse("the password of the user", "missing", "user:password@, or :password@ for the user default")
	}
	return user, password, nil
}

// locate sets the addresses and the database of the path.
func (d deployment) locate(o *redis.UniversalOptions, hosts, path string) error {
	if d.socket {
		socket, err := url.PathUnescape(path)
		switch {
		case hosts != "":
			return refuse("the host", d.shown(hosts), "absent, as in unix:///run/redis.sock; the path of a socket begins with /")
		case err != nil || strings.Trim(socket, "/") == "":
			return refuse("the path", d.shown(path), "that of a socket, as in unix:///run/redis.sock")
		}
		o.Addrs = []string{socket}
		return nil
	}
	all := strings.Split(hosts, ",")
	if len(all) > 1 && !d.sentinel && !d.cluster {
		return refuse("the number of hosts", strconv.Itoa(len(all)), "1, unless the scheme is that of Sentinel or of a cluster")
	}
	for i, text := range all {
		host, port := "the host", "the port"
		if len(all) > 1 {
			host = "host " + strconv.Itoa(i+1)
			port += " of " + host
		}
		addr, err := d.address(text, host, port)
		if err != nil {
			return err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if o.TLSConfig != nil && !d.sentinel && !d.cluster {
		// The others connect to several hosts, and each is to prove its own name.
		o.TLSConfig.ServerName, _, _ = net.SplitHostPort(o.Addrs[0])
	}
	switch db := strings.Trim(path, "/"); {
	case db == "":
	case !whole(&o.DB, 0)(db):
		rule := databases
		if d.sentinel {
			rule += "; the name of the primary is the parameter master"
		}
		return refuse("the database", d.shown(db), rule)
	}
	return nil
}

// databases is the rule for the number of a database.
const databases = "a number from 0"

// address parses host, host:port, [IPv6] or [IPv6]:port. The fields are for errors.
func (d deployment) address(text, hostField, portField string) (string, error) {
	const rule = "a name, an IPv4 address, or an IPv6 address in brackets"
	host, port, hasPort := strings.Cut(text, ":")
	valid := strings.Trim(host, nameCharacters) == "" && !strings.Contains(port, ":")
	if strings.HasPrefix(text, "[") {
		inside, after, closed := strings.Cut(text[1:], "]")
		zoned, err := url.PathUnescape(inside) // the % of a zone is %25
		ip, noIP := netip.ParseAddr(zoned)
		valid = closed && err == nil && noIP == nil && ip.Is6() && (after == "" || after[0] == ':')
		host = zoned
		port, hasPort = strings.CutPrefix(after, ":")
	}
	switch {
	case !valid:
		return "", refuse(hostField, d.shown(text), rule)
	case host == "":
		return "", refuse(hostField, "missing", rule)
	case !hasPort && d.sentinel:
		port = "26379"
	case !hasPort:
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", refuse(portField, d.shown(port), "a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
