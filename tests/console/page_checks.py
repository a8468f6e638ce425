"""Checks of every page, run in the browser: width, labels and contrast."""

from __future__ import annotations

from playwright.sync_api import Page

OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"

UNLABELLED = """() => {
  const named = (e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.title
    || [...(e.labels || [])].some((l) => l.textContent.trim()) || (e.matches('button, a, summary') && e.textContent.trim());
  const controls = 'input:not([type=hidden]), select, textarea, button, a[href], svg[role=img], summary';
  const wrong = [...document.querySelectorAll(controls)]
    .filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 120));
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  const twice = ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => `two elements have the id ${id}`);
  const heads = document.querySelectorAll('h1').length === 1 ? [] : ['not one h1'];
  return [...wrong, ...twice, ...heads];
}"""
"""Controls without an accessible name, and duplicate ids."""

LOW_CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return rgb('white');
  };
  const found = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !e.checkVisibility() || e.closest('[disabled], script, dialog, .skip')) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(rgb(style.color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const said = walk.currentNode.textContent.trim().slice(0, 30);
    if (ratio < 4.5) found.set(`${e.tagName}.${e.className}`, `${ratio.toFixed(2)} ${said}`);
  }
  return [...found].map((each) => each.join(': '));
}"""
"""Text with a contrast below 4.5 to 1."""


def overflow_pixels(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    page.wait_for_load_state()
    pixels: int = page.evaluate(OVERFLOW)
    return pixels


def unlabelled_controls(page: Page) -> list[str]:
    """Return controls without a name."""
    controls: list[str] = page.evaluate(UNLABELLED)
    return controls


def low_contrast_texts(page: Page) -> list[str]:
    """Return texts with a low contrast."""
    page.wait_for_load_state()  # an element can be visible before its stylesheet is loaded
    texts: list[str] = page.evaluate(LOW_CONTRAST)
    return texts
