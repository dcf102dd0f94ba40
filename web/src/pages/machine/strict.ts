// xterm.js makes <style> elements and style attributes, which the policy of the page forbids to scripts.
// It also clones elements and has no option that covers all of them. So this file makes the two calls
// of the document do the same with style sheets and the CSSOM, which the policy allows.

/** Stands for a <style> element: its text goes into a sheet, which ends when it is removed. */
function styleElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = create("span");
  element.hidden = true;
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

const create = document.createElement.bind(document);
document.createElement = (tag: string, options?: ElementCreationOptions) =>
  tag === "style" ? styleElement() : create(tag, options);

const setAttribute = HTMLElement.prototype.setAttribute;
HTMLElement.prototype.setAttribute = function (name, value) {
  if (name === "style") this.style.cssText = value;
  else setAttribute.call(this, name, value);
};
