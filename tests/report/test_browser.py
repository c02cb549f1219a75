"""The pages in a real browser: no error, nothing broken, nothing wider than a phone, enough contrast."""

import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

# Runs in a frame as wide as the window that is asked for: a headless window has a smallest width of its own.
MEASURE = """
<pre id="measured"></pre><iframe id="frame" style="border:0;width:{width}px;height:900px"></iframe>
<script>
const errors = [];
const frame = document.getElementById("frame");
function luminance(colour) {
  const parts = colour.match(/[\\d.]+/g).map((v) => Number(v) / 255);
  const [r, g, b] = parts.map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(element, view) {
  for (let at = element; at; at = at.parentElement) {
    const colour = view.getComputedStyle(at).backgroundColor;
    if (!/, 0\\)|transparent/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
}
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow;
  const broken = [...page.images].filter((image) => !image.complete || !image.naturalWidth).map((i) => i.alt);
  let worst = 21, where = "";
  for (const element of page.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !element.offsetParent) continue;
    const pair = [luminance(view.getComputedStyle(element).color), luminance(behind(element, view))];
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < worst) [worst, where] = [contrast, element.outerHTML.slice(0, 120)];
  }
  const verdict = page.getElementById("verdict");
  let shown = null;
  if (verdict) {
    verdict.value = "reproduced";
    verdict.dispatchEvent(new view.Event("change"));
    shown = [...page.querySelectorAll(".ledger tbody tr")].filter((row) => row.offsetParent).length;
  }
  const measured = {
    width: page.documentElement.scrollWidth, broken, worst, where, shown, images: page.images.length,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
  };
  document.getElementById("measured").textContent = JSON.stringify(measured);
};
frame.src = "{page}";
</script>
"""


def measure(folder, width, dark=False, page="index.html"):
    probe = folder / f"probe{width}.html"
    probe.write_text(MEASURE.replace("{width}", str(width)).replace("{page}", page))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += ["--allow-file-access-from-files", "--enable-logging=stderr", "--window-size=1300,1000"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", probe.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    probe.unlink()
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r'<pre id="measured">(.+?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-500:]
    text = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text), console


@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_reads_and_runs(site, width, dark):
    measured, console = measure(site, width, dark)
    assert console == []
    assert measured["dark"] == dark
    assert measured["images"] and measured["broken"] == []
    assert measured["width"] <= width
    assert measured["worst"] >= 4.5, measured["where"]
    assert measured["shown"] == 5  # of the 22 synthetic claims


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_notebooks_page_fits_and_reads(site, dark):
    measured, console = measure(site, 390, dark, "notebooks/04_scaling.html")
    assert console == [] and measured["broken"] == []
    assert measured["images"] == 1 and measured["width"] <= 390
    assert measured["worst"] >= 4.5, measured["where"]


def test_the_measure_notices_what_is_wrong(site, tmp_path):
    page = (site / "index.html").read_text()
    wrong = """<div style="width:900px">wide</div><p style="color:#999;background:#fff">pale</p>
    <img src="gone.png" alt="gone"><script>missing()</script>"""
    (tmp_path / "index.html").write_text(page.replace("<main", wrong + "<main"))
    measured, console = measure(tmp_path, 390)
    assert measured["width"] >= 900 and measured["broken"] == ["gone"] and measured["worst"] < 4.5
    assert any("missing is not defined" in line for line in console)
