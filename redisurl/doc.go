// Package redisurl parses the URL of a Redis deployment: one server, Sentinel or a cluster.
//
//	redis://user:password@host:6379/0
//	unix://user:password@/run/redis.sock?db=0
//	redis+sentinel://user:password@host:26379,host:26379/0?master=NAME
//	redis+cluster://user:password@host:6379,host:6379
//
// With rediss instead of redis, all connections use TLS, including those to the Sentinels.
//
//   - With every scheme, user and password are for the Redis servers. They may be absent.
//     Without a user, the password is for the user default.
//   - Hosts are separated by commas. An IPv6 address is in brackets. The default port is 6379, and 26379 for Sentinels.
//     If there are several Sentinels or nodes, name at least two, because one of them must answer the first connection.
//   - The path is the number of the database. A cluster has only database 0.
//   - master is the name under which the Sentinels watch the primary.
//   - sentinel_username and sentinel_password are for the Sentinels, if these need a
//     password. The user and password before the @ are never sent to a Sentinel.
//
// The following parameters have the names and values of go-redis. A duration is a text
// such as 500ms, or a number of seconds. An empty value selects the default:
//
//	client_name protocol db
//	dial_timeout read_timeout write_timeout
//	max_retries min_retry_backoff max_retry_backoff
//	pool_size pool_timeout min_idle_conns max_idle_conns max_active_conns
//	conn_max_idle_time conn_max_lifetime
//	skip_verify    only with TLS: certificates are not checked
//
// In user, password and parameters, write special characters percent-encoded: %40 for @, %2F
// for /, %3F for ?, %23 for #, %25 for %, %26 for & and %2B for +.
//
// The result is go-redis's own type, because a program needs to set more than a URL can
// contain, such as certificates or a Dialer, before it connects. lockcore.NewFromOptions and
// redis.NewUniversalClient make the kind of client that the scheme names:
//
//	options, err := redisurl.Parse(os.Getenv("REDIS_URL"))
//	if err != nil {
//		return err
//	}
//	if options.TLSConfig != nil {
//		options.TLSConfig.RootCAs = authorities
//	}
//	client, err := lockcore.NewFromOptions(options, lockcore.Config{})
//
// go-redis has a parser for each kind of client: the program must know which one it needs. Its
// errors may contain a part of the password.
//
// This package makes no connection and resolves no name, so there may be no server at a URL
// that it accepts. It also does not check certificates. With TLS, these must contain the
// addresses that Sentinels and nodes of a cluster announce.
package redisurl
