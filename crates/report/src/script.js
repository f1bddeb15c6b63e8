"use strict";
(() => {
  const root = document.documentElement;
  const make = (name, text, parent) => {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
    return element;
  };

  // Theme: as the system has it, or the one chosen here. Opened from a file there may be no storage.
  const themes = ["auto", "light", "dark"];
  const button = make("button", "", document.querySelector(".title"));
  button.id = "theme";
  button.type = "button";
  let theme = "auto";
  try { theme = localStorage.getItem("clearstream-theme") || theme; } catch { /* not kept */ }
  const show = () => {
    if (!themes.includes(theme)) theme = "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = "Theme: " + theme;
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("clearstream-theme", theme); } catch { /* not kept */ }
    show();
  });
  show();

  // What a mark says, also for the keyboard.
  const tip = make("div", "", document.body);
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  const hide = () => { tip.hidden = true; };
  for (const mark of document.querySelectorAll(".mark")) {
    const says = mark.getAttribute("aria-label");
    mark.querySelector("title")?.remove();
    const appear = () => {
      tip.textContent = says;
      tip.hidden = false;
      const box = mark.getBoundingClientRect();
      const left = box.left + box.width / 2 - tip.offsetWidth / 2;
      tip.style.left = Math.max(4, Math.min(left, root.clientWidth - tip.offsetWidth - 4)) + scrollX + "px";
      tip.style.top = box.top + scrollY - tip.offsetHeight - 8 + "px";
    };
    mark.addEventListener("mouseenter", appear);
    mark.addEventListener("focus", appear);
    mark.addEventListener("mouseleave", hide);
    mark.addEventListener("blur", hide);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Commands to the clipboard, where the browser lets a local file do so.
  if (navigator.clipboard) {
    for (const code of document.querySelectorAll("code.copy")) {
      const copy = document.createElement("button");
      copy.type = "button";
      copy.className = "copy";
      copy.textContent = "Copy";
      copy.setAttribute("aria-label", "Copy the command " + code.textContent.slice(0, 60));
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(code.textContent);
          copy.textContent = "Copied";
        } catch { copy.textContent = "Press Ctrl-C"; }
        setTimeout(() => { copy.textContent = "Copy"; }, 1500);
      });
      code.after(copy);
    }
  }

  // The results as a file.
  const data = document.getElementById("results");
  const place = document.getElementById("download");
  if (data && place) {
    make("button", "Save the results as JSON", place).addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([data.textContent], { type: "application/json" }));
      link.download = "results.json";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // On paper nothing is folded.
  const folded = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      folded.push(details);
    }
  });
  addEventListener("afterprint", () => { for (const details of folded.splice(0)) details.open = false; });
})();
