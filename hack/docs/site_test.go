// SPDX-License-Identifier: Apache-2.0

//go:build browser

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	// sitePath is the path that make test-site builds the site for, as GitHub Pages has it.
	sitePath = "/operator/"
	// missingPage is a page that does not exist.
	missingPage = "docs/none/"
	// browserTimeout ends a browser that hangs, and stepTimeout a test that waits in vain.
	browserTimeout = 10 * time.Minute
	stepTimeout    = time.Minute
)

// serveSite serves the directory SITE as GitHub Pages does, with the page 404.html for everything that does not exist.
func serveSite(t *testing.T) *url.URL {
	t.Helper()
	directory := os.Getenv("SITE")
	if directory == "" {
		t.Fatal("SITE is not set: run make test-site")
	}
	missing, err := os.ReadFile(filepath.Join(directory, "404.html"))
	if err != nil {
		t.Fatal(err)
	}
	files := os.DirFS(directory)
	serve := http.StripPrefix(sitePath, http.FileServerFS(files))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, below := strings.CutPrefix(r.URL.Path, sitePath)
		if strings.HasSuffix(r.URL.Path, "/") {
			name += "index.html"
		}
		file, err := files.Open(name)
		if !below || err != nil {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(missing)
			return
		}
		_ = file.Close()
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL + sitePath)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// startBrowser returns a context of a new browser, which can only reach this machine.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
	)
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

// tab is a page of the browser at one width.
type tab struct {
	*testing.T
	ctx  context.Context
	site *url.URL
	// width is that of the screen.
	width int

	mu       sync.Mutex
	problems []string
}

// openTab opens a tab. It fails the test if a page reports an error or sends a request to another host.
func openTab(browser context.Context, t *testing.T, site *url.URL, width, height int64, options ...chromedp.EmulateViewportOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	opened := &tab{T: t, ctx: ctx, site: site, width: int(width)}
	if err := chromedp.Listen(ctx, opened.listen); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	t.Cleanup(func() {
		opened.mu.Lock()
		defer opened.mu.Unlock()
		for _, problem := range opened.problems {
			// The browser reports the status of the missing page as an error.
			if !strings.Contains(problem, "404") || !strings.Contains(problem, missingPage) {
				t.Error(problem)
			}
		}
	})
	opened.run(chromedp.EmulateViewport(width, height, options...))
	return opened
}

func (t *tab) listen(event any) {
	var problem string
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if address, err := url.Parse(e.Request.URL); err != nil || address.Host != t.site.Host && address.Scheme != "data" {
			problem = "request to " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text
		if exception := e.ExceptionDetails.Exception; exception != nil {
			problem += " " + exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" {
			problem = "console error:"
			for _, argument := range e.Args {
				problem += fmt.Sprintf(" %s %s", argument.Value, argument.Description)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" {
			problem = "error: " + e.Entry.Text + " " + e.Entry.URL
		}
	}
	if problem != "" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.problems = append(t.problems, problem)
	}
}

func (t *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(t.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// open loads a page and returns its status.
func (t *tab) open(address string) int64 {
	t.Helper()
	response, err := chromedp.Run(t.ctx, chromedp.NavigateResponse(address))
	if err != nil {
		t.Fatalf("open %s: %v", address, err)
	}
	return response.Status
}

// waitFor waits until a JavaScript expression is true.
func (t *tab) waitFor(expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	// chromedp.Poll fails if it starts before chromedp has noticed that the page is a new one.
	promise := fmt.Sprintf("new Promise(done => { const look = () => (%s) ? done(true) : requestAnimationFrame(look); look() })", expression)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](promise, chromedp.EvalAwaitPromise)); err != nil {
		t.Fatalf("wait for %s at %s: %v", expression, eval[string](t, "location.href"), err)
	}
}

// eval returns the value of a JavaScript expression.
func eval[V any](t *tab, expression string) V {
	t.Helper()
	value, err := chromedp.Run(t.ctx, chromedp.Evaluate[V](expression))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// page returns the URL of a page of the site.
func (t *tab) page(name string) string {
	return t.site.String() + name
}

// sidebar returns the URLs of the pages in the navigation.
func (t *tab) sidebar() []string {
	t.Helper()
	t.open(t.site.String())
	links := eval[[]string](t, `[...document.querySelectorAll(".sidebar-container a")].map(a => a.href)`)
	for i, link := range links {
		links[i], _, _ = strings.Cut(link, "#")
	}
	slices.Sort(links)
	return slices.Compact(links)
}

// sitePage returns the path of the page of a document.
func sitePage(document string) string {
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(document, ".md"), "/README")) + "/"
}

func TestSite(t *testing.T) {
	site := serveSite(t)
	browser := startBrowser(t)
	t.Run("desktop", func(t *testing.T) {
		opened := openTab(browser, t, site, 1280, 800)
		checkPages(opened)
		// A phone shows the search in its menu.
		checkSearch(opened)
		checkMissing(opened)
	})
	t.Run("phone", func(t *testing.T) {
		opened := openTab(browser, t, site, 390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
		checkPages(opened)
		checkMissing(opened)
	})
}

// checkPages opens every page of the navigation. Each document of docs has one.
func checkPages(t *tab) {
	pages := append(t.sidebar(), t.site.String())
	headings := map[string]string{}
	for _, document := range read(t.T) {
		if strings.HasPrefix(document.Path, "docs/") && document.Path != "docs/README.md" {
			headings[t.page(sitePage(document.Path))] = document.Headings[0].Text
		}
	}
	for address := range headings {
		if !slices.Contains(pages, address) {
			t.Errorf("%s is not in the navigation", address)
		}
	}
	for _, address := range pages {
		if status := t.open(address); status != http.StatusOK {
			t.Errorf("%s: status %d", address, status)
			continue
		}
		t.checkPage(address, headings[address])
		if current := eval[string](t, `document.querySelector(".sidebar-active-item")?.href ?? ""`); current != address && address != t.site.String() {
			t.Errorf("%s: the navigation highlights %q", address, current)
		}
	}
	t.open(t.page("docs/concepts/"))
	t.waitFor(`document.querySelector(".mermaid svg")`)
	for _, name := range pictured {
		t.picture(name)
	}
}

// pictured are the pages of which a person can look at a picture: one of each kind.
var pictured = []string{"", "docs/concepts/", "docs/cli/explain/", "docs/guides/log-shippers/", "docs/troubleshooting/", missingPage}

// picture writes a picture of the whole page to the directory of artifacts, which go test keeps with -artifacts.
func (t *tab) picture(name string) {
	t.Helper()
	t.open(t.page(name))
	picture, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatalf("take a picture of %s: %v", t.page(name), err)
	}
	file := fmt.Sprintf("%s-%d.png", strings.ReplaceAll(cmp.Or(strings.TrimSuffix(name, "/"), "start"), "/", "-"), t.width)
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), file), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkPage checks the page that is open. If its heading is known, it must have that.
func (t *tab) checkPage(address, heading string) {
	t.Helper()
	page := eval[struct {
		Title    string
		Headings []string
		Width    int
		Wide     []string
		Cut      []string
		Pale     []string
	}](t, `({
		title: document.title,
		headings: [...document.querySelectorAll("h1")].map(h => h.textContent.trim()),
		width: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
		wide: [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > `+fmt.Sprint(t.width)+` &&
			!e.closest("table, pre, svg")).map(e => e.outerHTML.slice(0, 200)),
		cut: [...document.querySelectorAll("main pre, main table")].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 200)),
		pale: `+pale+`,
	})`)
	if !strings.Contains(page.Title, "sidecar-termination-operator") {
		t.Errorf("%s: title %q", address, page.Title)
	}
	if len(page.Headings) != 1 || page.Headings[0] == "" || heading != "" && page.Headings[0] != heading {
		t.Errorf("%s: headings %q, want %q", address, page.Headings, heading)
	}
	if page.Width > t.width || len(page.Wide) > 0 {
		t.Errorf("%s: the page is %d pixels wide on a screen of %d:\n%s", address, page.Width, t.width, strings.Join(page.Wide, "\n"))
	}
	if len(page.Cut) > 0 {
		t.Errorf("%s: cut on the right:\n%s", address, strings.Join(page.Cut, "\n"))
	}
	if len(page.Pale) > 0 {
		t.Errorf("%s: too little contrast in code: %q", address, page.Pale)
	}
}

// pale are the classes of tokens in code whose contrast is below that of WCAG level AA. A canvas knows every notation of colors, and
// paints what is transparent over what is behind it.
const pale = `(() => {
	const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
	const paint = color => {
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = e => {
		if (e.parentElement) behind(e.parentElement);
		return paint(e.parentElement ? getComputedStyle(e).backgroundColor : "white");
	};
	return [...new Set([...document.querySelectorAll("main .chroma span")].filter(e => {
		const [a, b] = [behind(e), paint(getComputedStyle(e).color)].sort((a, b) => b - a);
		return e.textContent.trim() && (a + 0.05) / (b + 0.05) < 4.5;
	}).map(e => e.className))];
})()`

// visible is the first element on the screen that a selector finds.
func visible(selector string) chromedp.JSPath {
	return chromedp.JSPath(fmt.Sprintf("[...document.querySelectorAll(%q)].find(e => e.getClientRects().length)", selector))
}

// follow clicks a link, which must lead to a page of the site.
func (t *tab) follow(selector, page string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Click(visible(selector)))
	if err != nil {
		t.Fatalf("follow %s: %v", selector, err)
	}
	if response.Status != http.StatusOK || response.URL != t.page(page) {
		t.Errorf("%s leads to %s with status %d, want %s", selector, response.URL, response.Status, t.page(page))
	}
}

func checkSearch(t *tab) {
	t.open(t.site.String())
	input := visible(".search-input")
	t.run(chromedp.Click(input), chromedp.SendKeys(input, "drainSeconds"))
	// The last key may come before the index is loaded.
	t.waitFor(`document.querySelector(".search-results a") || void document.activeElement.dispatchEvent(new Event("keyup"))`)
	t.follow(`.search-results a[href*="/docs/api-reference/#"]`, "docs/api-reference/")
}

func checkMissing(t *tab) {
	if status := t.open(t.page(missingPage)); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	t.checkPage(t.page(missingPage), "Page not found")
}
