// Package browser tests the page of package statusz in Chromium, and makes the screenshots of
// docs/OPERATIONS.md. It also tests that the schemas of the charts are valid for JavaScript.
//
// All tests share one Chromium process. Each tab has its own cookies and cache, and reaches only
// servers of its test at loopback addresses. If no Chromium is installed, the tests are skipped. With
// the environment variable NOONLOCK_REQUIRE_SERVERS=1 they fail.
package browser
