// Package chaos runs workers in processes of their own while a nemesis has faults with their processes, networks and
// servers. All record what they do, and a judge finds in this history what must not happen. make chaos runs it.
package chaos
