// Package browser tests the page of package statusz in Chromium, and makes the screenshots of
// docs/OPERATIONS.md. It also tests that the schemas of the charts are valid for JavaScript.
//
// All tests share one Chromium process. Each tab has its own cookies and cache, and reaches only
// servers of its test at loopback addresses.
package browser
