// What all pages share. A page's script gives `build(data, root)`, which returns a function that gives the page's state.
const h = (tag, attributes, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity));
  return element;
};
const button = (label, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, label);
const field = (label, input) => h("label", { class: "field" }, label + " ", input);
const select = (options, attributes) => h("select", attributes || {}, options.map((one) => h("option", {}, one)));
const root = document.getElementById("root");
// `draft`, if a page has one, gives the state that saving at this moment would give.
const task = window.task = { isOver: false, state: () => ({}), draft: null };
const finish = () => { task.isOver = true; root.replaceChildren(h("p", {}, "Done.")); };
const draw = (...children) => { if (!task.isOver) root.replaceChildren(...children.flat(Infinity).filter(Boolean)); };
