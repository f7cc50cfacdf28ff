package ci

import (
	"strings"
	"testing"
)

func TestWorkflow(t *testing.T) {
	t.Parallel()
	urls := map[string]string{"staging": server(t), "production": server(t)}

	// For a pull request the workflow plans, and changes nothing.
	got := event(t, "pull_request", nil, urls)
	wantJobs(t, got, map[string]string{"check": "success", "staging": "success", "production": "skipped", "drift": "skipped"})
	wantJUnit(t, got["check"].junit, 8, 0)
	if summary := got["staging"].summary.String(); !strings.Contains(summary, "+ policy api") {
		t.Errorf("the summary of the plan does not name what is new:\n%s", summary)
	}
	wantDeployed(t, urls["staging"], false)
	wantDeployed(t, urls["production"], false)

	// A push to main is deployed to staging, and then to production.
	got = event(t, "push", nil, urls)
	wantJobs(t, got, map[string]string{"check": "success", "staging": "success", "production": "success", "drift": "skipped"})
	wantDeployed(t, urls["staging"], true)
	wantDeployed(t, urls["production"], true)

	// The environments are checked independently.
	flush(t, urls["staging"])
	got = event(t, "schedule", nil, urls)
	wantJobs(t, got, map[string]string{
		"check": "success", "staging": "skipped", "production": "skipped", "drift (staging)": "failure", "drift (production)": "success",
	})
	wantDeployed(t, urls["staging"], false)
}

// Nothing is deployed after a failed job, and the job says why.
func TestWorkflowStops(t *testing.T) {
	for _, tc := range []struct {
		name           string
		event          string
		files          map[string]string
		staging        string // REDIS_URL of staging
		check, planned string // results of the jobs check and staging
		says           string
	}{
		{"bad policies", "push", badPolicies, server(t), "failure", "skipped", "fortnight"},
		{"a policy test that fails", "push", badTests, server(t), "failure", "skipped", "six passwords"},
		{"staging does not answer, on a pull request", "pull_request", nil, nobody(t), "success", "failure", "connection refused"},
		{"staging does not answer", "push", nil, nobody(t), "success", "failure", "connection refused"},
		{"no secret, as on a fork", "pull_request", nil, "", "success", "success", "redis-url is empty, so nothing is planned"},
		{"no secret", "push", nil, "", "success", "failure", "REDIS_URL is empty; add it to the secrets"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			urls := map[string]string{"staging": tc.staging, "production": server(t)}
			got := event(t, tc.event, tc.files, urls)
			wantJobs(t, got, map[string]string{"check": tc.check, "staging": tc.planned, "production": "skipped", "drift": "skipped"})
			if log := got["check"].log.String() + got["staging"].log.String(); !strings.Contains(log, tc.says) {
				t.Errorf("it does not say %q:\n%s", tc.says, log)
			}
			if tc.planned == "skipped" {
				wantDeployed(t, tc.staging, false)
			}
			wantDeployed(t, urls["production"], false)
		})
	}
}

func TestWorkflowShowsTheTestThatFails(t *testing.T) {
	t.Parallel()
	got := event(t, "pull_request", badTests, map[string]string{"staging": server(t)})
	wantJUnit(t, got["check"].junit, 1, 1)
}

// Without its secret, a check for drift fails.
func TestWorkflowSeesNoDriftWithoutASecret(t *testing.T) {
	t.Parallel()
	got := event(t, "schedule", nil, nil)
	wantJobs(t, got, map[string]string{
		"check": "success", "staging": "skipped", "production": "skipped", "drift (staging)": "failure", "drift (production)": "failure",
	})
}
